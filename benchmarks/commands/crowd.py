"""``python -m benchmarks crowd``: many processes that put small values at once, one by one and by ``put_many``.

Each process puts the same value again and again for the given time, by ``put`` or by ``put_many`` of a batch, into a
store that is empty at first. Puts per second are those of all processes together.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.machine import commit, machine
from benchmarks.harness.text import grid

if TYPE_CHECKING:
    from argparse import _SubParsersAction

START_SECONDS = 120.0
STORE_MIB = 4096


def add_crowd(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``crowd``."""
    parser = commands.add_parser("crowd", help="small puts of many processes at once, singly and in batches")
    parser.add_argument("--processes", type=int, default=64, help="default 64")
    parser.add_argument("--bytes", type=int, default=1024, help="of a value (default 1024)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 10, 100, 1000], help="1: put (default 1 to 1000)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="default 3; medians are printed")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    measured: dict[int, list[float]] = {batch: [] for batch in arguments.batches}
    with tempfile.TemporaryDirectory(prefix="entrepot-bench-") as name:
        for number in range(arguments.rounds):
            for batch in arguments.batches:
                with own_store(Path(name) / f"store-{number}-{batch}", STORE_MIB, "--spill-path", "none") as store:
                    measured[batch].append(_together(store.address, batch, arguments))
    medians = {batch: statistics.median(rates) for batch, rates in measured.items()}
    rows = [["put" if batch == 1 else f"put_many of {batch}", f"{rate:,.0f}"] for batch, rate in medians.items()]
    print(grid([f"{arguments.processes} processes", "puts a second, together"], rows))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "commit": commit(), "crowd": medians}, indent=1))
    return 0


def _together(address: str, batch: int, arguments: argparse.Namespace) -> float:
    """Puts per second of all processes together."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(arguments.processes), context.SimpleQueue()
    task = (address, batch, arguments.bytes, arguments.seconds, barrier, results)
    processes = [context.Process(target=_work, args=task, daemon=True) for _ in range(arguments.processes)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(START_SECONDS + 10 * arguments.seconds)
        if any(process.exitcode != 0 for process in processes):
            raise RuntimeError(f"of {arguments.processes} processes, some failed or took too long")
        rates: list[float] = [results.get() for _ in processes]
        return sum(rates)
    finally:
        for process in processes:
            process.kill()


def _work(address: str, batch: int, nbytes: int, seconds: float, barrier: Any, results: Any) -> None:
    import entrepot

    with entrepot.connect(address, scope="bench", session="crowd") as store:
        value = bytes(nbytes)
        values = [value] * batch
        store.put_many([value] * 100)  # by then, the connection has rings
        barrier.wait(START_SECONDS)
        puts = 0
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            if batch == 1:
                store.put(value)
            else:
                store.put_many(values)
            puts += batch
        results.put(puts / (time.monotonic() - begin))
        barrier.wait(START_SECONDS)
