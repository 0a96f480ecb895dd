"""``python -m benchmarks services``: a shuffle beside files, an aggregation beside a map, and k-means beside LRU.

The shuffle is in C++ on both sides: threads write the same records to pages of the store, and to buffered files, and
read them again, by partition. The files' process gets as much memory as the store has, page cache included. So does the
process with a ``std::unordered_map`` that is compared with an aggregation of string keys, also in C++. k-means makes
five passes over pages of 1.5 times the memory, in a locality set that declares them, and in one with the policy LRU.
Rounds of all alternate in one run, on a store of its own, and only ratios are meaningful.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands.checkpoints import own_store
from benchmarks.harness.control_group import memory_limit
from benchmarks.harness.machine import commit, machine
from benchmarks.harness.packages import native_of_developers
from benchmarks.harness.text import grid

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    import entrepot

MIB = 1 << 20
GOALS = {"write": 1.1, "read": 2.2}
KMEANS_GOAL = 1.8
AGGREGATION_GOAL = 1
GROUP_BYTES = 64  # of a group's record in a page
GROUP_TIMES = 2  # rows of each group
OVER = 1.5  # times the memory
PASSES = 5
CLUSTERS = 4
COLUMNS = 256
PAGE_BYTES = 4 * MIB


def add_services(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``services``."""
    parser = commands.add_parser("services", help="a shuffle, an aggregation and k-means beside what they replace")
    parser.add_argument("--mib", type=int, default=1024, help="of the store's memory (default 1024)")
    parser.add_argument("--rounds", type=int, default=3, help="of each (default 3); medians are printed")
    parser.add_argument("--record-bytes", type=int, default=100, help="default 100")
    parser.add_argument("--partitions", type=int, default=32, help="default 32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: the cores")
    parser.add_argument("--folder", type=Path, help="on the disk that is used (default: the system's temporary one)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    figures: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    table = []
    with tempfile.TemporaryDirectory(prefix="sv-", dir=arguments.folder) as folder:
        for share, spilling in ((0.25, False), (OVER, True)):
            name = f"{share:g} times the memory"
            disk = str(Path(folder, "spill")) if spilling else "none"
            with own_store(Path(folder, f"store-{share}"), arguments.mib, "--spill-path", disk) as store:
                figures[name] = _shuffle(store, Path(folder), arguments, share)
            for what, goal in GOALS.items():
                ours, files = (statistics.median(figures[name][key]) / 1e9 for key in (what, f"files_{what}"))
                table.append(
                    [f"shuffle, {name}: {what}", f"{ours:.2f}", f"{files:.2f}", f"{files / ours:.2f}", f"{goal:g}"]
                )
        for share, spilling in ((0.25, False), (OVER, True)):
            disk = str(Path(folder, "spill")) if spilling else "none"
            with own_store(Path(folder, f"groups-{share}"), arguments.mib, "--spill-path", disk) as store:
                measured = _aggregation(store, arguments, share)
            groups[f"{share:g} times the memory"] = measured
            ours = statistics.median(measured["ours"]) / 1e9
            by_map = statistics.median(measured["map"]) / 1e9 if measured["map"] else None
            row = ["killed", "-"] if by_map is None else [f"{by_map:.2f}", f"{by_map / ours:.2f}"]
            name = f"aggregation, {share:g} times the memory"
            table.append([name, f"{ours:.2f}", *row, f"{AGGREGATION_GOAL:g}"])
        with own_store(Path(folder, "kmeans"), arguments.mib, "--spill-path", str(Path(folder, "spill"))) as store:
            kmeans = _kmeans(store, arguments.rounds)
        for what, index, wanted in (("", 0, f"{KMEANS_GOAL:g}"), (": GB read from disk", 1, "")):
            ours, lru = (statistics.median(each[index] for each in kmeans[name]) for name in ("data_aware", "lru"))
            table.append([f"k-means, five passes{what}", f"{ours:.2f}", f"{lru:.2f}", f"{lru / ours:.2f}", wanted])
    print(f"Seconds, {arguments.threads} threads, {arguments.mib} MiB of memory, medians of {arguments.rounds}:")
    print(grid(["what", "entrepot", "files, map or LRU", "ratio", "goal"], table))
    if arguments.json is not None:
        everything = {"shuffle": figures, "aggregation": groups, "kmeans": kmeans}
        text = json.dumps({"machine": machine(), "commit": commit(), **everything})
        arguments.json.write_text(text, encoding="utf-8")
    return 0


def _shuffle(store: entrepot.Store, folder: Path, arguments: argparse.Namespace, share: float) -> dict[str, list[int]]:
    """Run both sides in turns, as often as asked for, each round in a process of its own."""
    files = folder / "files"
    files.mkdir(exist_ok=True)
    native, memory = str(native_of_developers()), arguments.mib * MIB
    page_bytes = min(MIB, memory // 8 // arguments.partitions // 4096 * 4096)
    numbers = [int(share * memory), arguments.record_bytes, arguments.partitions, arguments.threads, page_bytes, 1]
    figures: dict[str, list[int]] = {}
    sums = set()
    with memory_limit(memory) as limited:
        if limited is None:
            print("No control group can be made here: files have all of the machine's memory.")
        for _ in range(arguments.rounds):
            for socket, prefix in ((store.address.removeprefix("unix://"), ""), ("-", "files_")):
                command = [native, "shuffle", socket, str(files), *map(str, numbers)]
                enter = limited if prefix and limited else []
                done = subprocess.run([*enter, *command], check=True, capture_output=True, text=True)
                measured = json.loads(done.stdout)
                sums.add(measured["sum"])
                for key in GOALS:
                    figures.setdefault(prefix + key, []).extend(measured[key])
    if len(sums) != 1:
        raise RuntimeError(f"the records differ: {sums}")
    return figures


def _aggregation(store: entrepot.Store, arguments: argparse.Namespace, share: float) -> dict[str, list[int]]:
    """Run both sides in turns; the map's times are missing if its process was killed for its memory."""
    native, memory = str(native_of_developers()), arguments.mib * MIB
    page_bytes = min(MIB, memory // 8 // arguments.partitions // 4096 * 4096)
    groups = int(share * memory) // GROUP_BYTES
    numbers = [groups, GROUP_TIMES, arguments.partitions, page_bytes, memory // 2, 1]
    figures: dict[str, list[int]] = {"ours": [], "map": []}
    results = set()
    with memory_limit(memory) as limited:
        if limited is None:
            print("No control group can be made here: the map has all of the machine's memory.")
        for _ in range(arguments.rounds):
            for side, socket in (("ours", store.address.removeprefix("unix://")), ("map", "-")):
                command = [native, "aggregate", socket, *map(str, numbers)]
                enter = limited if side == "map" and limited else []
                done = subprocess.run([*enter, *command], capture_output=True, text=True, check=False)
                if done.returncode == -signal.SIGKILL and enter:
                    continue
                done.check_returncode()
                measured = json.loads(done.stdout)
                results.add((measured["groups"], measured["count"], measured["total"]))
                figures[side] += measured["took"]
    if len(results) != 1:
        raise RuntimeError(f"the results differ: {results}")
    return figures


def _kmeans(store: entrepot.Store, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Cluster the rows of pages whose locality set declares the loop, or has the policy LRU.

    Returns:
        for each the seconds of each round, and how many GB were read from disk.
    """
    import numpy as np

    pages = int(OVER * store.status()["capacity_bytes"]) // PAGE_BYTES
    figures: dict[str, list[tuple[float, float]]] = {"data_aware": [], "lru": []}
    random = np.random.default_rng(1)
    rows = random.random((PAGE_BYTES // COLUMNS // 4, COLUMNS), dtype=np.float32)
    for number in range(rounds):
        for policy in ("data_aware", "lru"):
            name = f"{policy}-{number}"
            if policy == "lru":
                points = store.locality_set(name, policy="lru")
            else:
                points = store.locality_set(name, reading="loop_sequential", writing="once")
            oids = [store.put(rows + np.float32(page), locality_set=points) for page in range(pages)]
            begin, read_before = time.monotonic(), store.status()["spill"]["read_bytes"]
            centers = rows[:CLUSTERS].copy()
            for _ in range(PASSES):
                sums, counts = np.zeros_like(centers), np.zeros(CLUSTERS)
                for oid in oids:
                    page = store.get(oid)
                    distances = (centers**2).sum(axis=1) - 2 * page @ centers.T
                    nearest = distances.argmin(axis=1)
                    chosen = np.eye(CLUSTERS, dtype=np.float32)[nearest]
                    sums += chosen.T @ page
                    counts += chosen.sum(axis=0)
                    del page
                centers = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
            took = time.monotonic() - begin
            figures[policy].append((took, (store.status()["spill"]["read_bytes"] - read_before) / 1e9))
            for oid in oids:
                store.delete(oid)
    return figures
