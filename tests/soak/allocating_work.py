"""Process that makes values in the store for long, and reports how much it holds whenever it has dropped all of them.

Arguments: address of the store, seconds, seed. Standard output: one line of JSON for each sample; see growth.py.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from entrepot import _core
from entrepot.errors import StoreFull, UnsupportedType

sys.path.insert(0, str(Path(__file__).parent))

from growth import LEAST_SAMPLES, Sample, memory_of_this_process

MAX_ITEMS = 1_500_000  # 12 MB of integers; the least value that is made in the store has 2 MiB
MOST_VALUES = 8
OPERATIONS_PER_ROUND = 40
RETURN_SECONDS = 30.0
ROUNDS_PER_RETURN = 8  # on average; in the others, leases stay warm


class WorkFailed(Exception):
    """What the work raises on purpose, in the middle of making a value."""


def make_numpy(chance: random.Random) -> Any:
    """An array; now and then with results of steps in between, or resized."""
    count = chance.randrange(1000, MAX_ITEMS)
    array = np.random.default_rng(count).integers(0, 1000, count)
    steps: list[Callable[[], Any]] = [
        lambda: array,
        lambda: np.sort(array * 0.5 + 1),
        lambda: np.concatenate([array, array[: count // 3]]),
        lambda: np.resize(array, count * 5 // 4),
        lambda: array[count // 8 :],
        lambda: {"sum": int(array.sum()), "array": array, "mask": array > 500},
    ]
    return chance.choice(steps)()


def make_arrow(chance: random.Random) -> Any:
    """A table, partly made by Arrow's compute functions."""
    count = chance.randrange(1000, MAX_ITEMS)
    numbers = pc.call_function("add", [pa.array(np.arange(count)), count])
    table = pa.table({"n": numbers, "half": pc.call_function("multiply", [numbers, 0.5])})
    steps: list[Callable[[], Any]] = [
        lambda: table,
        lambda: table.filter(pc.call_function("less", [numbers, count * 3 // 2])),
        lambda: table.append_column("text", pc.cast(numbers, pa.large_string())),
        lambda: table.slice(count // 4),
    ]
    return chance.choice(steps)()


def make_pandas(chance: random.Random) -> Any:
    """A frame that was filtered, grouped, assigned to or joined."""
    count = chance.randrange(1000, MAX_ITEMS // 2)
    frame = pd.DataFrame({"a": np.arange(count), "b": np.arange(count) % 97, "c": np.arange(count) / 3})
    steps: list[Callable[[], Any]] = [
        lambda: frame,
        lambda: frame[frame["a"] % 3 != 0].reset_index(drop=True),
        lambda: frame.assign(d=lambda f: f["c"] * f["a"]),
        lambda: frame.groupby("b", as_index=False).mean(),
        lambda: frame.merge(pd.DataFrame({"b": np.arange(97), "e": np.arange(97) * 0.25}), on="b"),
    ]
    return chance.choice(steps)()


MAKERS = (make_numpy, make_arrow, make_pandas)


def first_number(value: Any) -> Any:
    """A number of a value that tells whether it was read as it was put."""
    if isinstance(value, dict):
        return value["sum"]
    if isinstance(value, pa.Table):
        return value["n"][value.num_rows // 2].as_py()
    return value.iloc[len(value) // 2, 0] if isinstance(value, pd.DataFrame) else value[len(value) // 2]


class Work:
    """Random operations on a few values and objects.

    Args:
        store: connection to the store.
        chance: source of all choices.
        pool: threads that make some of the values.
    """

    def __init__(self, store: entrepot.Store, chance: random.Random, pool: ThreadPoolExecutor) -> None:
        self.store = store
        self.chance = chance
        self.pool = pool
        self.values: list[Any] = []
        self.objects: list[tuple[entrepot.ObjectID, Any]] = []
        self.counts = {"operations": 0, "puts": 0, "exceptions": 0, "full": 0}

    def step(self) -> None:
        """One random operation."""
        self.counts["operations"] += 1
        operations = [self.make] * 5 + [self.put] * 5 + [self.get] * 2 + [self.drop, self.delete] * 2
        self.chance.choice([*operations, self.write, self.fail])()

    def make(self) -> None:
        """Make a value, in this thread or another one, and drop an old one if there are many."""
        maker, source = self.chance.choice(MAKERS), random.Random(self.chance.random())
        in_thread = self.chance.random() < 0.3
        self.values.append(self.pool.submit(maker, source).result() if in_thread else maker(source))
        if len(self.values) > MOST_VALUES:
            self.drop()

    def put(self) -> None:
        """Put a value, now and then one that was put before; if the store is full, delete what is in it."""
        if not self.values:
            return
        value = self.chance.choice(self.values)
        try:
            self.objects.append((self.store.put(value), first_number(value)))
            self.counts["puts"] += 1
        except StoreFull:
            self.counts["full"] += 1
            self.values.clear()
            self.delete_all()

    def get(self) -> None:
        """Read an object and compare."""
        if self.objects:
            oid, expected = self.chance.choice(self.objects)
            read = first_number(self.store.get(oid))
            assert read == expected, f"{oid} holds {read}, and {expected} was put"

    def drop(self) -> None:
        """Drop a value."""
        if self.values:
            self.values.pop(self.chance.randrange(len(self.values)))

    def delete(self) -> None:
        """Delete an object."""
        if self.objects:
            self.store.delete(self.objects.pop(self.chance.randrange(len(self.objects)))[0])

    def delete_all(self) -> None:
        """Delete all objects."""
        for oid, _ in self.objects:
            self.store.delete(oid)
        self.objects.clear()

    def write(self) -> None:
        """Write to an array that may have been put: it gets pages of its own."""
        for value in self.values:
            if isinstance(value, np.ndarray):
                value[0] = value[0]
                return

    def fail(self) -> None:
        """Fail in the middle of making a value, or of its put, with half-made values in the frames of the traceback."""
        value = make_numpy(self.chance)
        try:
            if self.chance.random() < 0.5:
                self._fail_within(value)
            self.store.put([value, threading.Lock()])
        except (WorkFailed, UnsupportedType):
            self.counts["exceptions"] += 1

    def _fail_within(self, value: Any) -> None:
        half_made = [make_arrow(self.chance), value]
        raise WorkFailed(len(half_made))


def sample(store: entrepot.Store, seconds: float, waited: bool) -> Sample:
    """What the process and the store hold now."""
    status = store.status()
    return Sample(
        seconds=seconds,
        waited=waited,
        values=_core.value_memory()["allocations"],
        leased_bytes=status["leased_bytes"],
        used_bytes=status["used_bytes"],
        **memory_of_this_process(),
    )


def wait_for_return(store: entrepot.Store) -> None:
    """Wait until the store has back what is leased and what deleted objects used. Not an error if it takes too long."""
    end = time.monotonic() + RETURN_SECONDS
    while time.monotonic() < end:
        status = store.status()
        if not status["leased_bytes"] and not status["used_bytes"] and not status["deferred_frees"]:
            return
        time.sleep(0.02)


def main() -> None:
    """Work for the given time, and report after each round."""
    address, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    begin = time.monotonic()
    with entrepot.connect(address, scope="growth") as store, ThreadPoolExecutor(2) as pool:
        store.wait_provisioned()
        work = Work(store, chance, pool)
        is_last, rounds = False, 0
        while not is_last:
            rounds += 1
            with store.allocating():
                for _ in range(OPERATIONS_PER_ROUND):
                    work.step()
            is_last = time.monotonic() - begin > seconds and rounds >= LEAST_SAMPLES
            work.values.clear()
            work.delete_all()
            gc.collect()
            pa.default_memory_pool().release_unused()
            waited = is_last or chance.randrange(ROUNDS_PER_RETURN) == 0
            if waited:
                wait_for_return(store)
            print(json.dumps(asdict(sample(store, time.monotonic() - begin, waited))), flush=True)
        counts = work.counts | {name: _core.value_memory()[name] for name in ("allocated", "sealed", "refused")}
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
