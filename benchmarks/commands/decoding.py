"""``python -m benchmarks decoding``: one Parquet file read by many processes, and by one.

*Many*: processes that are ready begin at once; each reads the file and sums a column. Through the store, one of them
decodes; the peer is the same number of processes that read the file with PyArrow. Seconds until the last one is done;
memory that the processes allocated for tables at most, each by itself and all together, plus what the store uses.

*One*: from the file to a table that other processes can map. The peer decodes with PyArrow, writes an Arrow IPC file to
tmpfs and maps it. Both decode with the same number of threads. What is left of the time when nothing waits for decoded
data any more is shown as well: what sharing the table costs.

Each pair is measured in the same run, alternately; ratios are those of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.machine import ROOT, commit, machine
from benchmarks.reports.zero_copy import decoding_sections

if TYPE_CHECKING:
    from argparse import _SubParsersAction

MIB = 1 << 20
SECONDS = 600
TMPFS = Path("/dev/shm")  # noqa: S108
OURS, PEER = "Entrepot", "PyArrow"


def add_decoding(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``decoding``."""
    parser = commands.add_parser("decoding", help="one Parquet file read by many processes, and by one")
    parser.add_argument("--processes", type=int, default=25, help="default 25")
    parser.add_argument("--mib", type=int, default=256, help="of the table (default 256)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="that decode (default: all cores)")
    parser.add_argument("--rounds", type=int, default=3, help="default 3; medians are printed")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print two tables."""
    measured: dict[str, dict[str, list[dict[str, float]]]] = {"many": {OURS: [], PEER: []}, "one": {OURS: [], PEER: []}}
    with tempfile.TemporaryDirectory(prefix="entrepot-bench-") as name:
        folder = Path(name)
        path = _write_file(folder / "orders.parquet", arguments.mib)
        for number in range(arguments.rounds):
            for work, count in (("many", arguments.processes), ("one", 1)):
                with own_store(folder / f"store-{work}-{number}", 3 * arguments.mib, "--spill-path", "none") as store:
                    ours = _round(work, OURS, count, path, store.address, arguments.threads)
                    ours["store"] = store.status()["used_bytes"]
                    measured[work][OURS].append(ours)
                peer = _round(work, PEER, count, path, str(TMPFS), arguments.threads)
                measured[work][PEER].append({**peer, "store": 0.0})
    medians = {
        work: {
            who: {what: statistics.median(row[what] for row in rows) for what in rows[0]} for who, rows in by.items()
        }
        for work, by in measured.items()
    }
    print("\n\n".join(decoding_sections(medians)))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "commit": commit(), "decoding": medians}, indent=1))
    return 0


def _write_file(path: Path, mib: int) -> Path:
    """Write a table of numbers and text with some repetition, in row groups of about 16 MiB."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = mib * MIB // 48
    random = np.random.default_rng(1)
    table = pa.table(
        {
            "id": np.arange(rows),
            "day": random.integers(0, 365, rows),
            "total": random.normal(100, 20, rows),
            "price": random.integers(1, 10_000, rows) / 100,
            "city": pa.array([f"city {number}" for number in range(500)]).take(pa.array(random.integers(0, 500, rows))),
        }
    )
    pq.write_table(table, path, row_group_size=max(16 * MIB // 48, 1))
    return path


def _round(work: str, who: str, count: int, path: Path, where: str, threads: int) -> dict[str, float]:
    """Have ``count`` processes read the file at once; return what it took."""
    command = [sys.executable, "-m", "benchmarks.commands.decoding_worker", work, who, str(path), where, str(threads)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for process in processes:
            _answer(process, "ready")
        for process in processes:
            _tell(process)
        done: list[dict[str, Any]] = [json.loads(_answer(process)) for process in processes]
        for process in processes:
            _tell(process)
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=SECONDS)
    if len({row["sum"] for row in done}) != 1:
        raise RuntimeError(f"the processes read different tables: {done}")
    return {
        "seconds": max(row["end"] for row in done) - min(row["begin"] for row in done),
        "peak": max(row["peak"] for row in done),
        "peaks": sum(row["peak"] for row in done),
        "copy": sum(row["copy"] for row in done),
        "cpu": sum(row["cpu"] for row in done),
        "sharing": max(row["end"] - row["begin"] - row["decoding"] for row in done),
        "decoders": sum(row["peak"] >= row["bytes"] // 100 for row in done),
    }


def _answer(process: subprocess.Popen[str], expected: str | None = None) -> str:
    line = process.stdout.readline() if process.stdout else ""
    if not line or (expected is not None and line.strip() != expected):
        raise RuntimeError(f"a reader ended, or answered {line!r}")
    return line


def _tell(process: subprocess.Popen[str]) -> None:
    if process.stdin:
        process.stdin.write("\n")
        process.stdin.flush()
