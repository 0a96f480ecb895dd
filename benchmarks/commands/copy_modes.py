"""The cost of ``copy="on_write"`` for readers that never write: docs/decisions/0021-read-only-by-default.md.

    python -m benchmarks.commands.copy_modes

Gets in each mode, interleaved, in one process, on a store of its own; times are medians, and only their ratio within
one run is meaningful. Then each value is put again unchanged, and the additional memory that the store uses is printed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pandas as pd

from benchmarks.commands.checkpoints import own_store

MIB = 1 << 20
ROUNDS = 25
SIZES = (1, 16, 128)


def values(mib: int) -> dict[str, Any]:
    """The values of a size."""
    numbers = np.arange(mib * MIB // 8, dtype=np.int64)
    return {"array": numbers, "frame": pd.DataFrame(numbers.reshape(-1, 16), columns=[f"c{i}" for i in range(16)])}


def get_seconds(store: entrepot.Store, oid: entrepot.ObjectID, *, read: bool) -> dict[str, float]:
    """Median time of a get, of reading all of it if ``read`` is true, and of releasing its value, by mode."""
    taken: dict[str, list[float]] = {"never": [], "on_write": []}
    for _ in range(ROUNDS):
        for mode, times in taken.items():
            begin = time.perf_counter()
            value = store.get(oid, copy=mode)  # type: ignore[arg-type]
            if read:
                np.asarray(value).max()
            del value
            times.append(time.perf_counter() - begin)
    return {mode: statistics.median(times) for mode, times in taken.items()}


def put_again_bytes(store: entrepot.Store, oid: entrepot.ObjectID, mode: Any) -> int:
    """Additional memory of the store after a value is got and put again, unchanged."""
    before = int(store.status()["used_bytes"])
    again = store.put(store.get(oid, copy=mode))
    grown = int(store.status()["used_bytes"]) - before
    store.delete(again)
    return grown


def measure(store: entrepot.Store) -> None:
    """Print a line for each value."""
    print("median times in us: never, on_write, and their ratio")
    print(f"{'value':16} {'get':^24}   {'get and read':^24}   put again, MiB: never, on_write")
    for mib in SIZES:
        for name, value in values(mib).items():
            oid = store.put(value)
            line = f"{f'{name} {mib} MiB':16}"
            for read in (False, True):
                taken = get_seconds(store, oid, read=read)
                ratio = taken["on_write"] / taken["never"]
                line += f" {1e6 * taken['never']:8.0f} {1e6 * taken['on_write']:8.0f} {ratio:6.2f}  "
            grown = [put_again_bytes(store, oid, mode) / MIB for mode in ("never", "on_write")]
            print(f"{line} {grown[0]:8.1f} {grown[1]:8.1f}", flush=True)
            store.delete(oid)


def main() -> int:
    """Measure on a store that ends with this process."""
    with (
        tempfile.TemporaryDirectory(prefix="cm-") as folder,
        own_store(Path(folder, "store"), 1 << 10, "--spill-path", "none") as store,
    ):
        measure(store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
