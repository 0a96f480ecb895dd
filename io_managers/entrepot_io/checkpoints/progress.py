"""How far a save or load is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is, for a ``progress`` callback.

    Attributes:
        done_bytes: payload that is dealt with: written, read, or found to be there.
        total_bytes: of all.
        done_objects: objects whose last byte is dealt with.
        total_objects: of all.
        moved_bytes: how much of ``done_bytes`` was really written to, or read from, the target.
    """

    done_bytes: int
    total_bytes: int
    done_objects: int
    total_objects: int
    moved_bytes: int


ProgressCallback = Callable[[Progress], None]


class Counter:
    """Counts from several threads and tells one callback, one call at a time."""

    def __init__(self, callback: ProgressCallback | None, total_bytes: int, total_objects: int) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._total = (total_bytes, total_objects)
        self._done_bytes = 0  # this and the following are guarded by _lock
        self._done_objects = 0
        self.moved_bytes = 0

    def add(self, nbytes: int, *, moved: int = 0, objects: int = 0) -> None:
        """So much more was dealt with; what the callback raises ends the save or load."""
        with self._lock:
            self._done_bytes += nbytes
            self._done_objects += objects
            self.moved_bytes += moved
            if self._callback is not None:
                self._callback(
                    Progress(
                        self._done_bytes,
                        max(self._total[0], self._done_bytes),
                        self._done_objects,
                        self._total[1],
                        self.moved_bytes,
                    )
                )
