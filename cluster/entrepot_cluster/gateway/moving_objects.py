"""Objects that are being moved to another store, and will be deleted here; and whether all of them are."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from entrepot.errors import EntrepotError, ObjectExists, StoreUnavailable

DRAINING_SECONDS = 30.0  # after a batch, within which the next one is expected


class MovingObjects:
    """Which objects are being moved away. Thread-safe.

    Two stores that each have a copy, and move it to each other at the same time, would otherwise both delete theirs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: set[bytes] = set()  # guarded by _lock
        self._batches = 0  # being drained; guarded by _lock
        self._drained_until = 0.0  # guarded by _lock

    @contextmanager
    def moving(self, oids: Iterable[bytes]) -> Iterator[None]:
        """Move objects away within the block.

        Raises:
            ObjectExists: one of them is being moved already.
        """
        ids = set(oids)
        with self._lock:
            if taken := ids & self._ids:
                raise ObjectExists(f"object {taken.pop().hex()} is being moved to another store already")
            self._ids |= ids
        try:
            yield
        finally:
            with self._lock:
                self._ids -= ids

    @contextmanager
    def draining(self) -> Iterator[None]:
        """Move a batch of everything away within the block."""
        with self._lock:
            self._batches += 1
        try:
            yield
        finally:
            with self._lock:
                self._batches -= 1
                self._drained_until = time.monotonic() + DRAINING_SECONDS

    def refusal(self, oid: bytes) -> EntrepotError | None:
        """Why an object cannot be moved or copied here; None: it can."""
        with self._lock:
            if self._batches or time.monotonic() < self._drained_until:
                return StoreUnavailable("this store is being drained, and takes no objects from others")
            if oid not in self._ids:
                return None
        return ObjectExists(
            f"object {oid.hex()} is being moved to another store from here: try again when that is done"
        )
