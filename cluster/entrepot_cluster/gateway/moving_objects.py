"""Objects that are being moved to another store, and will be deleted here."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from entrepot.errors import ObjectExists


class MovingObjects:
    """Which objects are being moved away. Thread-safe.

    Two stores that each have a copy, and move it to each other at the same time, would otherwise both delete theirs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: set[bytes] = set()  # guarded by _lock

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

    def refusal(self, oid: bytes) -> ObjectExists | None:
        """Why an object cannot be moved here; None: it can."""
        with self._lock:
            if oid not in self._ids:
                return None
        return ObjectExists(
            f"object {oid.hex()} is being moved to another store from here: try again when that is done"
        )
