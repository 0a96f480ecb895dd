"""The machine's own limits, measured by bench_native: copies into warm pages, and round trips to another process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.harness.figures import FREE, SAME_CORE, TWO_CORES, WARM, Collector, Key
from benchmarks.harness.processes import ALL_CPUS, CpuUsage

NATIVE_SECONDS = 300
COPIES = {"memcpy": "memcpy", "streamed": "non-temporal stores", "entrepot": "the store's own copy"}
PAGES = {"shared": "shared, 4 KiB", "shared-huge": "shared, 2 MiB"}


class NativeFailed(Exception):
    """bench_native failed; the message is its own."""


class Native:
    """bench_native of one build."""

    def __init__(self, program: Path) -> None:
        self.program = program

    def run(self, *arguments: object) -> dict[str, Any]:
        """Run it and return its result; times are lists of nanoseconds.

        Raises:
            NativeFailed: it failed.
        """
        command = [str(self.program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=NATIVE_SECONDS)
        if done.returncode != 0:
            raise NativeFailed(f"{' '.join(command[:4])}: {done.stderr.strip()}")
        figures: dict[str, Any] = json.loads(done.stdout)
        return figures


def socket_limits(native: Native, collector: Collector, state: str, count: int) -> None:
    """A bare round trip over a unix socket, to compare with puts of small values."""
    places = [(FREE, -1, -1), (SAME_CORE, ALL_CPUS[0], ALL_CPUS[0])]
    if len(ALL_CPUS) > 1:
        places.append((TWO_CORES, ALL_CPUS[0], ALL_CPUS[-1]))
    for cpus, here, peer_cpu in places:
        figures = native.run("round-trip", count, here, peer_cpu)
        key = Key("small", state, "put", WARM, cpus, "limit: socket round trip")
        collector.add(key, figures["round_trip"], nbytes=64, cpu_ns=figures["cpu_ns"] / count)


def copy_limits(native: Native, collector: Collector, states: list[str], nbytes: int, repeats: int) -> None:
    """Copies of a large value into warm pages, to compare with puts of large values."""
    for pages, name in PAGES.items():
        busy = CpuUsage()
        figures = native.run("copies", nbytes, repeats, pages, 1)
        foreign = busy.share_of_others(figures["cpu_ns"])
        huge = figures["huge_bytes"] * 2 > nbytes
        if pages == "shared-huge" and not huge:
            continue  # the kernel gave no huge pages: this would duplicate the other case
        for way, text in COPIES.items():
            for state in states:
                key = Key("large", state, "put", WARM, FREE, f"limit: {text}, {name.partition(', ')[2]} pages")
                collector.add(key, figures[way], nbytes=nbytes, foreign=foreign, pages=name)


def copies_together(native: Native, collector: Collector, state: str, nbytes: int, clients: int, repeats: int) -> None:
    """Several processes copying at once, to compare with several clients putting at once."""
    for pages, name in PAGES.items():
        figures = native.run("copies", nbytes, repeats, pages, clients)
        for way, text in COPIES.items():
            key = Key("together", state, "put", WARM, FREE, f"limit: {text}, {name.partition(', ')[2]} pages")
            collector.add(key, figures[way], nbytes=nbytes * clients, pages=name)
