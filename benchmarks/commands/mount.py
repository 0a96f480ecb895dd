"""``python -m benchmarks mount``: objects read through a mount, beside the same files on tmpfs.

Sequential: ``read(2)`` of an Arrow file from its beginning to its end, in blocks of 128 KiB and of 1 MiB. The first
read of a version of an object goes to the process of the mount; later ones are answered from the kernel's page cache.
Mapped: PyArrow maps the file and adds up a column. DuckDB: a scan of a Parquet file. Rounds of the mount and of tmpfs
alternate; only ratios are meaningful.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.text import grid

if TYPE_CHECKING:
    from argparse import _SubParsersAction

MIB = 1 << 20
GOAL_ARROW = 0.5
GOAL_PARQUET = 1.2
_CAPACITY_MIB = 3072


def add_mount(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``mount``."""
    parser = commands.add_parser("mount", help="objects read through a mount, beside files on tmpfs")
    parser.add_argument("--rounds", type=int, default=7, help="of each (default 7)")
    parser.add_argument("--mib", type=int, default=512, help="size of the table (default 512)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print tables."""
    import duckdb

    rows = arguments.mib * MIB // 16
    with (
        tempfile.TemporaryDirectory(prefix="mt-", dir="/dev/shm") as fast,
        tempfile.TemporaryDirectory(prefix="mt-") as folder,
        own_store(Path(folder, "store"), _CAPACITY_MIB, "--spill-path", "none") as store,
        _mounted(Path(folder, "mount"), store.address) as mount,
    ):
        table = pa.table({"n": np.arange(rows), "x": np.random.default_rng(1).random(rows)})
        oid = store.derive("table")
        store.put(table, id=oid, name="table")
        stored = store.get(oid)
        for suffix in (".arrow", ".parquet"):
            begin = time.perf_counter()
            shutil.copyfile(mount / f"table{suffix}", Path(fast, f"table{suffix}"))
            print(f"{suffix}, {os.path.getsize(mount / f'table{suffix}') / MIB:.0f} MiB: "
                  f"encoded and copied to tmpfs in {time.perf_counter() - begin:.2f} s")  # fmt: skip

        def new_version() -> None:  # the same memory as a new generation, which the kernel has not read yet
            store.delete(oid)
            store.put(stored, id=oid, name="table")

        def add_up(path: Path) -> None:
            with pa.memory_map(str(path)) as file:
                pc.call_function("sum", [pa.ipc.open_file(file).read_all()["x"]])

        def scan(path: Path) -> None:
            duckdb.execute(f"SELECT sum(n), max(x) FROM '{path}'").fetchall()

        lines = []
        for what, suffix, use, fresh in (
            ("read in blocks of 128 KiB, first", ".arrow", _reader(128 << 10), new_version),
            ("read in blocks of 128 KiB, again", ".arrow", _reader(128 << 10), None),
            ("read in blocks of 1 MiB, first", ".arrow", _reader(MIB), new_version),
            ("read in blocks of 1 MiB, again", ".arrow", _reader(MIB), None),
            ("mapped and added up, again", ".arrow", add_up, None),
            ("DuckDB's scan", ".parquet", scan, None),
        ):
            lines.append(_compared(what, suffix, use, fresh, mount, Path(fast), arguments.rounds))
    print(grid(["", "mount", "tmpfs", "speed of tmpfs", "time of tmpfs"], lines))
    print(f"goals: .arrow at {GOAL_ARROW:g} of tmpfs's speed, Parquet within {GOAL_PARQUET:g} of its time")
    return 0


def _compared(
    what: str,
    suffix: str,
    use: Callable[[Path], Any],
    fresh: Callable[[], None] | None,
    mount: Path,
    fast: Path,
    rounds: int,
) -> list[str]:
    times: dict[Path, list[float]] = {mount: [], fast: []}
    for folder in times:  # whatever is done once is done before
        use(folder / f"table{suffix}")
    for _ in range(rounds):
        for folder, seconds in times.items():
            if fresh is not None and folder == mount:
                fresh()
            begin = time.perf_counter()
            use(folder / f"table{suffix}")
            seconds.append(time.perf_counter() - begin)
    through, beside = statistics.median(times[mount]), statistics.median(times[fast])
    return [
        what,
        f"{1e3 * through:.0f} ms",
        f"{1e3 * beside:.0f} ms",
        f"{beside / through:.2f}",
        f"{through / beside:.2f}",
    ]


def _reader(block: int) -> Callable[[Path], None]:
    buffer = bytearray(block)

    def read(path: Path) -> None:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    return read


@contextmanager
def _mounted(folder: Path, address: str) -> Iterator[Path]:
    folder.mkdir()
    command = [sys.executable, "-m", "entrepot"]
    log = folder.with_suffix(".log")
    subprocess.run([*command, "mount", "--address", address, "--log", str(log), str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*command, "umount", "--lazy", str(folder)], check=True)
