"""Client that repeats small operations and records every pause; or, as ``timer``, one that only sleeps.

``reads``: gets objects that it has pinned. This involves no other process, so nothing that happens to any of them may
delay it. ``puts``: puts, gets and deletes a small object through the daemon. ``timer``: measures delays caused by the
machine itself.

It writes ``begin end`` of each pause to ``probe-KIND.gaps`` in the directory, by the system-wide monotonic clock, and
``done COUNT`` at its end; ``E text`` is a wrong value.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import entrepot
import numpy as np
from entrepot.errors import StoreFull, StoreUnavailable, Timeout
from journal import Journal, content
from worker import connect

PACE_SECONDS = 0.002
MIN_PAUSE_SECONDS = 0.02  # shorter pauses are not recorded
PINNED_SIZES = {"probe-inline": 1000, "probe-large": 300_000}


class Reader:
    """Gets objects that it has pinned."""

    def __init__(self, store: entrepot.Store, journal: Journal) -> None:
        self.store = store
        self.journal = journal
        self.expected = {key: content(key, size) for key, size in PINNED_SIZES.items()}
        for key, value in self.expected.items():
            store.put(value, id=store.derive(key))
        self.pinned = [store.get(store.derive(key)) for key in PINNED_SIZES]

    def step(self) -> None:
        for key, value in self.expected.items():
            if not np.array_equal(self.store.get(self.store.derive(key)), value):
                self.journal.write("E", f"{key} came back with other content")

    def end(self) -> None:
        self.pinned.clear()
        for key in self.expected:
            self.store.delete(self.store.derive(key))


class Writer:
    """Puts, gets and deletes."""

    def __init__(self, store: entrepot.Store, journal: Journal) -> None:
        self.store = store
        self.journal = journal
        self.number = 0
        self.uncertain_keys: list[str] = []  # may exist, because an error came instead of a reply

    def step(self) -> None:
        self.number += 1
        key = f"probe-{self.number}"
        self.uncertain_keys.append(key)
        oid = self.store.derive(key)
        self.store.put(content(key, 200), id=oid)
        if not np.array_equal(self.store.get(oid), content(key, 200)):
            self.journal.write("E", f"{key} came back with other content")
        self.store.delete(oid)
        self.uncertain_keys.pop()

    def end(self) -> None:
        for key in self.uncertain_keys:
            self.store.delete(self.store.derive(key))


class Timer:
    """Does nothing between the sleeps."""

    def step(self) -> None:
        return

    def end(self) -> None:
        return


def retry_until_available(work: Callable[[], None]) -> None:
    """Retry until the store responds: there may be no daemon for a while."""
    end = time.monotonic() + 60
    while True:
        try:
            return work()
        except (StoreUnavailable, Timeout, StoreFull):
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def main() -> int:
    kind, address, folder = sys.argv[1:4]
    stop = Path(folder) / "stop-probes"
    journal = Journal(Path(folder) / f"probe-{kind}.gaps")
    probe: Reader | Writer | Timer
    if kind == "timer":
        probe = Timer()
    else:
        store = connect(address)
        probe = Reader(store, journal) if kind == "reads" else Writer(store, journal)
    retry_until_available(probe.step)
    (Path(folder) / f"probe-{kind}.ready").touch()
    done, last = 0, time.monotonic()
    while not stop.exists():
        try:
            probe.step()
        except (StoreUnavailable, Timeout, StoreFull):
            time.sleep(0.02)  # delayed, for whatever reason: the pause continues
            continue
        now = time.monotonic()
        if now - last > MIN_PAUSE_SECONDS:
            journal.write(f"{last:.4f}", f"{now:.4f}")
        done, last = done + 1, now
        time.sleep(PACE_SECONDS)
    retry_until_available(probe.end)
    journal.write("done", done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
