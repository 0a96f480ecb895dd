"""``python -m benchmarks zero-copy``: values that are put without a copy, each beside the same with one.

*Pipeline*: each step is a process of its own, which gets a table, adds a column and stores the result. Through the
store, a step stores the new column; the peer writes an Arrow IPC file to tmpfs, which holds the whole table each time.
Both map what they read. Only the peer's last file is kept, or its files would fill the machine.

*Column*: an eighth of the table, made by PyArrow, is appended to the stored table, and the result is put. *Seal*: a
value of the table's size is put. Both with values made in the store (``Store.allocating``) and in ordinary memory,
alternately. The making is not timed; encoding is that part of the put which only describes the value.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.machine import ROOT, commit, machine
from benchmarks.reports.zero_copy import sections

if TYPE_CHECKING:
    from argparse import _SubParsersAction

MIB = 1 << 20
COLUMNS = 8
STEP_SECONDS = 300
TMPFS = "/dev/shm"  # noqa: S108
WORDS = {"process": "the process's", "store": "the store's"}


def add_zero_copy(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``zero-copy``."""
    parser = commands.add_parser("zero-copy", help="pipelines that add columns, and values made in the store")
    parser.add_argument("--mib", type=int, default=1024, help="of the table and the values (default 1024)")
    parser.add_argument("--steps", type=int, default=10, help="of the pipeline (default 10)")
    parser.add_argument("--rounds", type=int, default=3, help="of the pipeline (default 3); medians are printed")
    parser.add_argument("--puts", type=int, default=15, help="of each value (default 15); medians are printed")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print the tables."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="entrepot-bench-") as name:
        folder = Path(name)
        figures["pipeline"] = _pipeline(folder, arguments.mib, arguments.steps, arguments.rounds)
        # Values made in the store may take half of it. The one that is made next exists beside the one before.
        with own_store(folder / "values", 6 * arguments.mib, "--spill-path", "none") as store:
            figures["column"] = _column(store, arguments.mib, arguments.puts)
            figures["seal"] = _seal(store, arguments.mib, arguments.puts)
    print("\n\n".join(sections(figures)))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "commit": commit(), **figures}, indent=1))
    return 0


# --- pipeline


def _table(mib: int) -> Any:
    import numpy as np
    import pyarrow as pa

    rows = mib * MIB // 8 // COLUMNS
    return pa.table({f"c{number}": np.arange(rows, dtype=np.int64) + number for number in range(COLUMNS)})


def _pipeline(folder: Path, mib: int, steps: int, rounds: int) -> dict[str, Any]:
    """Run both pipelines, alternating step by step.

    Raises:
        RuntimeError: a step failed, or the two computed different columns.
    """
    from benchmarks.commands.zero_copy_worker import OURS, PEER, write_ipc

    taken: dict[str, list[list[dict[str, Any]]]] = {OURS: [], PEER: []}
    size = mib + mib // COLUMNS * steps
    for number in range(rounds):
        with (
            own_store(folder / f"pipeline-{number}", size * 3 // 2, "--spill-path", "none") as store,
            tempfile.TemporaryDirectory(prefix="entrepot-bench-", dir=TMPFS) as files,
        ):
            first = Path(files, "0.arrow")
            table = _table(mib)
            write_ipc(table, first)
            source = {OURS: str(store.put(table)), PEER: str(first)}
            del table
            where = {OURS: store.address, PEER: files}
            done: dict[str, list[dict[str, Any]]] = {OURS: [], PEER: []}
            for step in range(1, steps + 1):
                for who, rows in done.items():
                    rows.append(_step(who, where[who], source[who], step))
                    if who == PEER:
                        Path(source[who]).unlink()
                    source[who] = rows[-1]["result"]
                if len({rows[-1]["sum"] for rows in done.values()}) != 1:
                    raise RuntimeError(f"step {step} computed different columns: {done}")
            for who, rows in done.items():
                taken[who].append(rows)

    def middle(who: str, what: str) -> list[float]:
        return [statistics.median(rows[step][what] for rows in taken[who]) for step in range(steps)]

    result: dict[str, Any] = {"bytes": mib * MIB, "column": max(middle(OURS, "column"))}
    return result | {who: {what: middle(who, what) for what in ("bytes", "seconds", "making")} for who in taken}


def _step(who: str, where: str, source: str, number: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.commands.zero_copy_worker", who, where, source, str(number)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=STEP_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"step {number} of {who} failed: {done.stderr.strip()[-1000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


# --- values made in the store


def _column(store: Any, mib: int, puts: int) -> dict[str, Any]:
    """Append a column to a stored table, and put the result."""
    import pyarrow.compute as pc

    call: Callable[..., Any] = pc.call_function
    source = store.put(_table(mib))
    table = store.get(source)
    taken: dict[str, list[float]] = {where: [] for where in WORDS}
    page_kinds: set[str] = set()
    for number in range(puts):
        for where, times in taken.items():
            with store.allocating() if where == "store" else nullcontext():
                column = call("add", [table.column(0), number])
            if where == "store":
                page_kinds.add(_pages(column.chunk(0).buffers()[1].address))
            begin = time.perf_counter()
            oid = store.put(table.append_column("new", column))
            times.append(time.perf_counter() - begin)
            del column
            store.delete(oid)
    del table
    store.delete(source)
    return {"bytes": mib * MIB // COLUMNS, "pages": _worst(page_kinds)} | {
        where: statistics.median(times) for where, times in taken.items()
    }


def _seal(store: Any, mib: int, puts: int) -> list[dict[str, Any]]:
    """Put values of three libraries."""
    from benchmarks.commands.allocating import makers

    lines: list[dict[str, Any]] = []
    for name, make in makers(mib).items():
        taken: dict[str, list[float]] = {where: [] for where in (*WORDS, "encoding")}
        page_kinds: set[str] = set()
        for _ in range(puts):
            for where in WORDS:
                with store.allocating() if where == "store" else nullcontext():
                    value = make()
                if where == "store":
                    page_kinds.add(_pages(_address(value)))
                    taken["encoding"].append(_encoding(value))
                begin = time.perf_counter()
                oid = store.put(value)
                taken[where].append(time.perf_counter() - begin)
                del value
                store.delete(oid)
        line: dict[str, Any] = {"value": name, "bytes": mib * MIB, "pages": _worst(page_kinds)}
        lines.append(line | {what: statistics.median(times) for what, times in taken.items()})
    return lines


def _encoding(value: Any) -> float:
    """Seconds to describe the value, which the put does once more."""
    from entrepot._codecs.encoding import codec_registry
    from entrepot.codec import encode_value

    begin = time.perf_counter()
    encode_value(value, codec_registry(), allow_pickle=False)
    return time.perf_counter() - begin


def _address(value: Any) -> int:
    import numpy as np
    import pyarrow as pa

    if isinstance(value, pa.Array):
        return int(value.buffers()[1].address)
    return int(np.asarray(value).ctypes.data)


def _pages(address: int) -> str:
    from benchmarks.harness.values import pages_at

    return pages_at(address)


def _worst(page_kinds: set[str]) -> str:
    """The pages of all turns if they are the same, and otherwise each kind."""
    return " or ".join(sorted(page_kinds))
