"""``python -m benchmarks observers``: what it costs a task's puts and gets that somebody looks at the store.

One process puts and gets values while nobody looks, and then while ``entrepot ui`` serves a page,
``entrepot metrics`` is scraped every second, or ``entrepot top`` draws in a pseudo-terminal, in turns. Each figure is
the ratio to the rounds in which nobody looked. The cost of traces that are off is the share of one check in a put; that
of ``Store.list()`` is relative to the put of what it lists.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.looking import drawn_top, refreshed_page, scraped_metrics
from benchmarks.harness.machine import commit, machine
from benchmarks.harness.text import grid

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from contextlib import AbstractContextManager

STORE_MIB = 1024
NOBODY = "nobody"
_CALLS = ("put 1 KiB", "get 1 KiB", "put 1 MiB", "get 1 MiB")
_LISTS = 3  # of which the quickest counts


def add_observers(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``observers``."""
    parser = commands.add_parser("observers", help="puts and gets while a page, metrics or top look at the store")
    parser.add_argument("--objects", type=int, default=100_000, help="in the store (default 100,000)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each size of values in a round (default 4)")
    parser.add_argument("--rounds", type=int, default=5, help="default 5; medians are printed")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print two tables."""
    import entrepot

    observers: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
        NOBODY: lambda address: nullcontext(),
        "entrepot ui": refreshed_page,
        "entrepot metrics": scraped_metrics,
        "entrepot top": drawn_top,
    }
    times: dict[str, dict[str, list[float]]] = {name: {call: [] for call in _CALLS} for name in observers}
    with (
        tempfile.TemporaryDirectory(prefix="entrepot-bench-") as folder,
        own_store(Path(folder) / "store", STORE_MIB, "--spill-path", "none") as running,
        entrepot.connect(running.address, scope="bench", session="observers") as store,
    ):
        began = time.perf_counter()
        for start in range(0, arguments.objects, 10_000):
            store.put_many([b"x" * 100] * min(10_000, arguments.objects - start))
        put_many_seconds = (time.perf_counter() - began) / arguments.objects
        list_seconds = min(timeit.repeat(store.list, number=1, repeat=_LISTS)) / arguments.objects
        for _ in range(arguments.rounds):
            for name, observe in observers.items():
                with observe(running.address):
                    for call, seconds in _calls(store, arguments.seconds).items():
                        times[name][call].append(seconds)
        put_seconds = statistics.median(times[NOBODY]["put 1 KiB"])
    medians = {name: {call: statistics.median(series[call]) for call in _CALLS} for name, series in times.items()}
    rows = [
        [name, *(_cell(medians[name][call], medians[NOBODY][call], name == NOBODY) for call in _CALLS)]
        for name in observers
    ]
    print(grid(["who looks", *_CALLS], rows))
    print(
        f"\nStore.list(): {list_seconds * 1e6:.1f} us an object, {list_seconds / put_many_seconds:.1f} times of what "
        "put_many took to put it."
    )
    check = _check_seconds()
    print(f"\nTraces that are off: {check * 1e9:.0f} ns a value, {check / put_seconds:.2%} of a put of 1 KiB.")
    if arguments.json:
        document = {
            "machine": machine(),
            "commit": commit(),
            "seconds": medians,
            "traces_off_seconds": check,
            "list_seconds": list_seconds,
            "put_many_seconds": put_many_seconds,
        }
        arguments.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


def _cell(seconds: float, alone: float, absolute: bool) -> str:
    return f"{seconds * 1e6:.1f} us" if absolute else f"{seconds / alone:.2f}"


def _calls(store: Any, seconds: float) -> dict[str, float]:
    """Mean seconds of each kind of call: what looks at the store is at work for a part of the time only."""
    small, large = bytes(1 << 10), bytes(1 << 20)
    figures: dict[str, float] = {}
    for name, value in (("1 KiB", small), ("1 MiB", large)):
        puts: list[float] = []
        gets: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            oid = store.put(value)
            puts.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            store.get(oid)
            gets.append(time.perf_counter() - begin)
            store.delete(oid)
        figures[f"put {name}"] = statistics.fmean(puts)
        figures[f"get {name}"] = statistics.fmean(gets)
    return figures


def _check_seconds() -> float:
    """Seconds that a value's put spends on finding that traces are off."""
    from entrepot_io.tracing import switch

    if switch.is_on():
        raise RuntimeError(f"{switch.VARIABLE} is set: unset it, to measure what traces cost that are off")
    count = 1_000_000
    called = min(timeit.repeat(switch.is_on, number=count, repeat=5))
    return called / count
