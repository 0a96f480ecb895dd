"""Progress of a save or load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress, as passed to a ``progress`` callback.

    Attributes:
        done_bytes: payload processed so far: written, read, or found to exist already.
        total_bytes: total payload.
        done_objects: objects that are completely processed.
        total_objects: total number of objects.
        moved_bytes: the part of ``done_bytes`` that was actually written to, or read from, the target.
    """

    done_bytes: int
    total_bytes: int
    done_objects: int
    total_objects: int
    moved_bytes: int


ProgressCallback = Callable[[Progress], None]


class ProgressCounter:
    """Counts from several threads and calls one callback, one call at a time."""

    def __init__(self, callback: ProgressCallback | None, total_bytes: int, total_objects: int) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._total = (total_bytes, total_objects)
        self._done_bytes = 0  # this and the following are guarded by _lock
        self._done_objects = 0
        self.moved_bytes = 0

    def add(self, nbytes: int, *, moved: int = 0, objects: int = 0) -> None:
        """Add to the counts; an exception from the callback aborts the save or load."""
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
