"""The store beside what the machine can do (memcpy) and what a workflow does without us (pickle to tmpfs).

All ways run in the same process on the same data, in turn, so that a busy machine disturbs all alike. ``make bench``
runs it; results go to ``bench-out/store.json`` and ``bench-out/store.md``.
"""

from __future__ import annotations

import argparse
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import entrepot
import numpy as np
import numpy.typing as npt

from benchmarks.daemon import running
from benchmarks.measure import Figure, Stopwatch, as_json, machine, table

MIB = 1 << 20
OURS, MEMCPY, PICKLE = "entrepot", "memcpy (warm pages)", "pickle to tmpfs"
# What a reader in a process of its own does: gets, then touches every page. It prints both times.
READER = """
import sys, time
import numpy
import entrepot
with entrepot.connect(sys.argv[1]) as store:
    begin = time.perf_counter()
    value = store.get(entrepot.ObjectID(sys.argv[2]))
    got = time.perf_counter()
    total = float(value[::512].sum())
    print(got - begin, time.perf_counter() - begin)
"""
READER_PICKLE = """
import pickle, sys, time
import numpy
begin = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    value = pickle.load(file)
got = time.perf_counter()
total = float(value[::512].sum())
print(got - begin, time.perf_counter() - begin)
"""


@contextmanager
def _tmpfs() -> Iterator[Path]:
    """A folder in memory, else the system's temporary folder."""
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="ent-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _dump(path: Path, value: object) -> None:
    with path.open("wb") as file:
        pickle.dump(value, file, protocol=5)


def _load(path: Path) -> object:
    with path.open("rb") as file:
        return pickle.load(file)


def small(store: entrepot.Store, folder: Path, repeats: int) -> list[Figure]:
    """One KiB of bytes at a time: the latency of one call."""
    value = bytes(range(256)) * 4
    path = folder / "small"
    seconds: dict[tuple[str, str], list[float]] = {
        (case, way): [] for case in ("put 1 KiB bytes", "get 1 KiB bytes") for way in (OURS, PICKLE)
    }
    for _ in range(repeats):
        with Stopwatch() as put:
            oid = store.put(value)
        with Stopwatch() as get:
            store.get(oid)
        store.delete(oid)
        with Stopwatch() as dump:
            _dump(path, value)
        with Stopwatch() as load:
            _load(path)
        for samples, watch in zip(seconds.values(), (put, dump, get, load), strict=True):
            samples.append(watch.seconds)
    return [Figure.of(case, way, samples, len(value)) for (case, way), samples in seconds.items()]


def many(store: entrepot.Store, folder: Path, count: int, batch: int) -> list[Figure]:
    """Many small objects in batches; times are for one object."""
    values = [b"%016d" % number * 8 for number in range(count)]
    paths = [folder / f"many-{number}" for number in range(count)]
    oids: list[entrepot.ObjectID] = []
    results: list[object] = []
    with Stopwatch() as put:
        for begin in range(0, count, batch):
            oids.extend(store.put_many(values[begin : begin + batch]))
    with Stopwatch() as get:
        for begin in range(0, count, batch):
            results.extend(store.get_many(oids[begin : begin + batch]))
    if results != values:
        raise AssertionError("the store gave back other values than it was given")
    results.clear()
    with Stopwatch() as delete:
        for oid in oids:
            store.delete(oid)
    with Stopwatch() as dump:
        for path, value in zip(paths, values, strict=True):
            _dump(path, value)
    with Stopwatch() as load:
        for path in paths:
            _load(path)
    with Stopwatch() as unlink:
        for path in paths:
            path.unlink()
    figures = []
    for what, ours, theirs in (("put", put, dump), ("get", get, load), ("delete", delete, unlink)):
        case = f"{what} one of {count:,} (128 bytes)"
        figures.append(Figure.of(case, OURS, [ours.seconds / count]))
        figures.append(Figure.of(case, PICKLE, [theirs.seconds / count]))
    return figures


def _in_a_new_process(program: str, *arguments: str) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True, timeout=300
    )
    got, read = done.stdout.split()
    return float(got), float(read)


def large(store: entrepot.Store, address: str, folder: Path, nbytes: int, repeats: int) -> list[Figure]:
    """One large array: put, get here, get in another process, and the limit that memcpy sets."""
    array: npt.NDArray[np.float64] = np.random.default_rng(1).random(nbytes // 8)
    copy = array.copy()
    path = folder / "large"
    name = f"{nbytes // MIB} MiB float64"
    seconds: dict[tuple[str, str], list[float]] = {}

    def note(case: str, way: str, taken: float) -> None:
        seconds.setdefault((f"{case} {name}", way), []).append(taken)

    for _ in range(repeats):
        with Stopwatch() as watch:
            oid = store.put(array)
        note("put", OURS, watch.seconds)
        with Stopwatch() as watch:
            np.copyto(copy, array)
        note("put", MEMCPY, watch.seconds)
        with Stopwatch() as watch:
            _dump(path, array)
        note("put", PICKLE, watch.seconds)
        with Stopwatch() as watch:
            value = store.get(oid)
        note("get", OURS, watch.seconds)
        if not np.array_equal(value, array):
            raise AssertionError("the store gave back another array than it was given")
        del value
        with Stopwatch() as watch:
            value = _load(path)
        note("get", PICKLE, watch.seconds)
        del value
        got, read = _in_a_new_process(READER, address, str(oid))
        note("first get in a new process", OURS, got)
        note("first get in a new process, every page read", OURS, read)
        got, read = _in_a_new_process(READER_PICKLE, str(path))
        note("first get in a new process", PICKLE, got)
        note("first get in a new process, every page read", PICKLE, read)
        store.delete(oid)
        path.unlink()
    order = sorted(seconds, key=lambda key: [case for case, _ in seconds].index(key[0]))
    return [Figure.of(case, way, seconds[case, way], nbytes) for case, way in order]


def main() -> int:
    """Runs all cases, prints the table and writes the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="folder of the results")
    parser.add_argument("--large-mib", type=int, default=256, help="size of the large array")
    parser.add_argument("--count", type=int, default=100_000, help="number of small objects")
    parser.add_argument("--repeats", type=int, default=7, help="repetitions with the large array")
    parser.add_argument("--small-repeats", type=int, default=2000, help="repetitions with 1 KiB")
    parser.add_argument(
        "--capacity-mib", type=int, help="of the store; default: four times the large array, 1 GiB or more"
    )
    arguments = parser.parse_args()
    about = machine()
    capacity = arguments.capacity_mib or max(1024, 4 * arguments.large_mib)
    with running(f"{capacity}MiB") as address, _tmpfs() as folder, entrepot.connect(address) as store:
        figures = small(store, folder, repeats=arguments.small_repeats)
        figures += many(store, folder, arguments.count, batch=1000)
        figures += large(store, address, folder, arguments.large_mib * MIB, arguments.repeats)
    text = table(figures)
    print(text)
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    arguments.out.mkdir(parents=True, exist_ok=True)
    result = {"machine": about, "figures": as_json(figures)}
    (arguments.out / "store.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "store.md").write_text(text + "\n", encoding="utf-8")
    print(f"written: {arguments.out}/store.json, {arguments.out}/store.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
