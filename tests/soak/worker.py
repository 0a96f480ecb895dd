"""One client of the soak: puts, gets, deletes and abandons objects at random until it is stopped or killed.

It keeps a journal, written before and after each change, which tells the driver (and the restarted worker) what must be
in the store, what must not, and what may be either because a kill came in between:

``P key size`` before a put, ``p key`` after it; ``D key`` before a delete, ``d key`` after it; ``E text`` a violation;
``V count``: number of further values compared.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import entrepot
import numpy as np
from entrepot._codecs.plasma_objects import PlasmaObject
from entrepot.errors import ObjectNotFound, StoreFull, StoreUnavailable, Timeout
from journal import Journal, content, read_journal, recent_sizes

MAX_LIVE = 24
VALUES_PER_LINE = 10


@dataclass(frozen=True)
class Load:
    """Limits of one worker's requests."""

    min_bytes: int
    max_bytes: int
    max_held_values: int
    evicts: bool


LOADS = {
    "memory": Load(min_bytes=1, max_bytes=4 << 20, max_held_values=8, evicts=False),
    # Several times the store's memory; few objects are held, so that the rest can be spilled.
    "spilling": Load(min_bytes=1 << 10, max_bytes=3 << 20, max_held_values=1, evicts=True),
}


class Worker:
    """Random operations of one client."""

    def __init__(self, address: str, journals: Path, number: int, seed: int, load: Load) -> None:
        self.load = load
        self.store = connect(address)
        self.journals = journals
        self.number = number
        self.random = random.Random(seed)
        path = journals / f"{number}.journal"
        before = read_journal(path)
        self.live = [key for key, state in before.items() if state.must_exist]
        self.counter = len(before)
        self.journal = Journal(path)
        self.held_values: list[tuple[str, int, np.ndarray]] = []
        self.sizes = {key: state.size for key, state in before.items()}
        self.compared_count = 0

    def step(self) -> None:
        """Do one operation."""
        action = self.random.choices(
            (
                self.put,
                self.read,
                self.delete,
                self.abandon,
                self.release_value,
                self.check_held_values,
                self.evict_or_prefetch,
            ),
            (30, 40, 18, 4, 10, 10, 8 if self.load.evicts else 0),
        )[0]
        try:
            action()
        except StoreFull:
            self.held_values.clear()
            if self.live:
                self.delete()
        except (StoreUnavailable, Timeout):
            time.sleep(0.05)  # the daemon is being restarted, and the client's own timeout expired

    def put(self) -> None:
        if len(self.live) >= MAX_LIVE:
            self.delete()
            return
        key = f"{self.number}-{self.counter}"
        self.counter += 1
        size = self.size()
        self.journal.write("P", key, size)
        self.sizes[key] = size
        self.store.put(content(key, size), id=self.store.derive(key))
        self.journal.write("p", key)
        self.live.append(key)

    def size(self) -> int:
        """Random size, uniform over orders of magnitude; mostly large if objects are to be spilled."""
        if self.load.evicts:
            return self.random.randrange(self.load.min_bytes, self.load.max_bytes)
        return int(2 ** self.random.uniform(0, np.log2(self.load.max_bytes)))

    def evict_or_prefetch(self) -> None:
        """Spill one of its own objects, or reload it."""
        if not self.live:
            return
        oid = self.store.derive(self.random.choice(self.live))
        if self.random.random() < 0.7:
            self.store.evict(oid)
        else:
            self.store.prefetch(oid)

    def read(self) -> None:
        """Read any worker's object: it must be what was put, or not exist."""
        other = self.random.choice(sorted(self.journals.glob("*.journal")))
        sizes = recent_sizes(other) | {key: self.sizes[key] for key in self.live if other.stem == str(self.number)}
        if not sizes:
            return
        key = self.random.choice(sorted(sizes))
        try:
            value = self.store.get(self.store.derive(key))
        except ObjectNotFound:
            if other.stem == str(self.number) and key in self.live:
                self.journal.write("E", f"{key} was put, not deleted, and is not found")
            return
        self.verify(key, sizes[key], value)
        if len(self.held_values) < self.load.max_held_values and self.random.random() < 0.3:
            self.held_values.append((key, sizes[key], value))

    def delete(self) -> None:
        if not self.live:
            return
        key = self.live.pop(self.random.randrange(len(self.live)))
        self.journal.write("D", key)
        self.store.delete(self.store.derive(key))
        self.journal.write("d", key)

    def abandon(self) -> None:
        """Begin an object and drop it, like a task that raises."""
        try:
            with self.store.create(self.random.randrange(1, self.load.max_bytes)) as blob:
                blob.view[0] = 1
                raise KeyError("given up on purpose")
        except StoreFull:
            raise
        except KeyError:
            pass

    def release_value(self) -> None:
        if self.held_values:
            self.held_values.pop(self.random.randrange(len(self.held_values)))

    def check_held_values(self) -> None:
        """A held value stays unchanged, whoever deleted it or whatever died meanwhile."""
        for key, size, value in self.held_values:
            self.verify(key, size, value)

    def verify(self, key: str, size: int, value: object) -> None:
        self.compared_count += 1
        if self.compared_count % VALUES_PER_LINE == 0:
            self.journal.write("V", VALUES_PER_LINE)
        if isinstance(value, PlasmaObject):
            value = np.frombuffer(value.data, dtype=np.uint8)
        if not isinstance(value, np.ndarray) or not np.array_equal(value, content(key, size)):
            self.journal.write("E", f"{key} of {size} bytes came back with other content")


def connect(address: str) -> entrepot.Store:
    """Connect as soon as a store responds."""
    end = time.monotonic() + 60
    while True:
        try:
            return entrepot.connect(address, scope="soak", session="")
        except (StoreUnavailable, Timeout):
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def main() -> int:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    address, journals, number, seed, load = sys.argv[1:6]
    stop = Path(journals) / "stop"
    worker = Worker(address, Path(journals), int(number), int(seed), LOADS[load])
    while not stop.exists():
        worker.step()
    return 0


if __name__ == "__main__":
    sys.exit(main())
