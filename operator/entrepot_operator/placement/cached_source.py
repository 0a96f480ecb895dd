"""Wraps a slow source, such as an API server, for processes that must not wait for it, such as a scheduler.

call, nothing known --> a thread reads, the caller waits briefly
call, known and fresh --> answered at once; the thread rereads periodically
no more calls --> the thread ends
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from entrepot.errors import EntrepotError

from entrepot_operator.placement.locations import Locations
from entrepot_operator.placement.sources import LocationsUnavailable


class CachedSource:
    """The result of a function, refreshed by a background thread.

    Args:
        read: the function; an error it raises means that nothing is known.
        what: what it reads, for messages.
        every: seconds between two reads.
        patience: seconds that a caller waits while nothing is known.
        oldest: seconds after which a result is no longer used.
        idle: seconds without a call after which the thread ends.
    """

    def __init__(
        self,
        read: Callable[[], Locations],
        what: str,
        *,
        every: float = 5.0,
        patience: float = 2.0,
        oldest: float = 60.0,
        idle: float = 120.0,
    ) -> None:
        self._read = read
        self._description = what
        self._interval = every
        self._patience = patience
        self._max_age = oldest
        self._idle_timeout = idle
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None  # this and the following: guarded by _changed
        self._latest: tuple[float, Locations] | None = None  # time at which the read began, and its result
        self._error: EntrepotError | None = None  # of the last read
        self._read_count = 0
        self._last_request = 0.0

    def places(self) -> Locations:
        """Return the cached locations.

        Raises:
            LocationsUnavailable: nothing, or only outdated results; the message says why.
        """
        if self._pid != os.getpid():
            self._reset()  # after a fork: the thread exists only in the parent, and may have held the condition
        with self._changed:
            self._last_request = time.monotonic()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._refresh_loop, name="entrepot-locations", daemon=True)
                self._thread.start()
            read_count = self._read_count
            self._changed.wait_for(
                lambda: self._fresh_locations() is not None or self._read_count > read_count, self._patience
            )
            locations = self._fresh_locations()
            if locations is not None:
                return locations
            cause = "no response yet" if self._error is None else str(self._error)
        raise LocationsUnavailable(f"{self._description}: object locations are not known: {cause}")

    def _fresh_locations(self) -> Locations | None:
        if self._latest is None or time.monotonic() - self._latest[0] > self._max_age:
            return None
        return self._latest[1]

    def _refresh_loop(self) -> None:
        while True:
            started = time.monotonic()
            locations: Locations | None = None
            error: EntrepotError | None = None
            try:
                locations = self._read()
            except EntrepotError as raised:
                error = raised
            with self._changed:
                self._error = error
                if locations is not None:
                    self._latest = (started, locations)
                self._read_count += 1
                self._changed.notify_all()
                self._changed.wait(self._interval)
                if time.monotonic() - self._last_request > self._idle_timeout:
                    self._thread = None
                    return
