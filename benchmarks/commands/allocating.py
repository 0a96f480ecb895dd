"""The cost of putting a value that was made in the store: docs/allocating.md.

    python -m benchmarks.commands.allocating

Makes a value and puts it, in ordinary memory and in the store's (``Store.allocating``), interleaved in one process, on
a store of its own. Then arithmetic whose results are never put, which must not become slower either. Times are
medians; only ratios within one run are meaningful. A copy of the value within the process is the limit of a put that
copies.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.commands.checkpoints import own_store

MIB = 1 << 20
ROUNDS = 9
SIZES = (2, 16, 128, 1024)
UNPUT_SIZES = (2, 3, 4, 16, 64, 256)
UNPUT_BYTES = 1 << 30  # of results in each round


def makers(mib: int) -> dict[str, Callable[[], Any]]:
    """Ways of making a value of a size."""
    rows = mib * MIB // 8
    numbers = pa.array(np.arange(rows))
    return {
        "numpy": lambda: np.full(rows, 7, dtype=np.int64),
        "pandas": lambda: pd.DataFrame(np.full((rows // 8, 8), 7.5), columns=list("abcdefgh")),
        "arrow": lambda: pc.call_function("add", [numbers, 1]),
    }


def measure_one(store: entrepot.Store, make: Callable[[], Any]) -> dict[str, tuple[float, float]]:
    """Median seconds of making and of putting the value, by where it is made."""
    taken: dict[str, list[tuple[float, float]]] = {"process": [], "store": []}
    for _ in range(ROUNDS):
        for where, times in taken.items():
            with store.allocating() if where == "store" else nullcontext():
                begin = time.perf_counter()
                value = make()
                made = time.perf_counter()
                oid = store.put(value)
                done = time.perf_counter()
            times.append((made - begin, done - made))
            del value
            store.delete(oid)
    return {
        where: (statistics.median(make for make, _ in times), statistics.median(put for _, put in times))
        for where, times in taken.items()
    }


def arithmetic_seconds(mib: int) -> float:
    """Time of an operation on arrays of a size, whose results are dropped at once."""
    first, second = np.ones(mib * MIB // 8), np.ones(mib * MIB // 8)
    times = max(2, UNPUT_BYTES // (3 * mib * MIB))
    begin = time.perf_counter()
    for _ in range(times):
        np.sqrt(first * second + second)
    return (time.perf_counter() - begin) / times


def measure_unput(store: entrepot.Store) -> None:
    """Print a line for each size."""
    print("values that are never put, medians in ms")
    print(f"{'value':18} {'process':>9} {'store':>9} {'ratio':>6}")
    for mib in UNPUT_SIZES:
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(ROUNDS):
            for allocates, seconds in times.items():
                with store.allocating() if allocates else nullcontext():
                    seconds.append(arithmetic_seconds(mib))
        process, store_median = statistics.median(times[False]), statistics.median(times[True])
        line = f"{1e3 * process:9.2f} {1e3 * store_median:9.2f} {store_median / process:6.2f}"
        print(f"{f'numpy {mib} MiB':18} {line}", flush=True)


def copy_seconds(mib: int) -> float:
    """Median time of a copy within the process, into memory that was used before."""
    source, target = np.ones(mib * MIB, dtype=np.uint8), np.ones(mib * MIB, dtype=np.uint8)
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(store: entrepot.Store) -> None:
    """Print a line for each value."""
    print("medians in ms; the process's memory | the store's; copy: of the same bytes within the process")
    print(f"{'value':18} {'make':^19} {'put':^19} {'make and put':^19} {'ratio':>6} {'copy':>9}")
    for mib in SIZES:
        copy = copy_seconds(mib)
        for name, make in makers(mib).items():
            result = measure_one(store, make)
            process, in_store = result["process"], result["store"]
            columns = [*zip(process, in_store, strict=True), (sum(process), sum(in_store))]
            text = " ".join(f"{1e3 * before:9.2f} {1e3 * after:9.2f}" for before, after in columns)
            print(f"{f'{name} {mib} MiB':18} {text} {sum(in_store) / sum(process):6.2f} {1e3 * copy:9.2f}", flush=True)


def main() -> int:
    """Measure on a store that ends with this process."""
    with (
        tempfile.TemporaryDirectory(prefix="al-") as folder,
        own_store(Path(folder, "store"), 6 << 10, "--spill-path", "none") as store,
    ):
        measure(store)
        measure_unput(store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
