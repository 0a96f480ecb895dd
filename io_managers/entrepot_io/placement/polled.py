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

from entrepot_io.placement.locating import Places
from entrepot_io.placement.sources import LocationsUnavailable


class Polled:
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
        read: Callable[[], Places],
        what: str,
        *,
        every: float = 5.0,
        patience: float = 2.0,
        oldest: float = 60.0,
        idle: float = 120.0,
    ) -> None:
        self._read = read
        self._what = what
        self._every = every
        self._patience = patience
        self._oldest = oldest
        self._idle = idle
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None  # this and the following: guarded by _changed
        self._known: tuple[float, Places] | None = None  # time at which the read began, and its result
        self._error: EntrepotError | None = None  # of the last read
        self._reads = 0
        self._asked = 0.0

    def places(self) -> Places:
        """What is currently known.

        Raises:
            LocationsUnavailable: nothing, or only outdated results; the message says why.
        """
        if self._pid != os.getpid():
            self._begin()  # after a fork: the thread exists only in the parent, and may have held the condition
        with self._changed:
            self._asked = time.monotonic()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="entrepot-locations", daemon=True)
                self._thread.start()
            reads = self._reads
            self._changed.wait_for(lambda: self._fresh() is not None or self._reads > reads, self._patience)
            found = self._fresh()
            if found is not None:
                return found
            why = "no answer yet" if self._error is None else str(self._error)
        raise LocationsUnavailable(f"{self._what}: nothing is known of where objects are now: {why}")

    def _fresh(self) -> Places | None:
        if self._known is None or time.monotonic() - self._known[0] > self._oldest:
            return None
        return self._known[1]

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            found: Places | None = None
            error: EntrepotError | None = None
            try:
                found = self._read()
            except EntrepotError as failed:
                error = failed
            with self._changed:
                self._error = error
                if found is not None:
                    self._known = (began, found)
                self._reads += 1
                self._changed.notify_all()
                self._changed.wait(self._every)
                if time.monotonic() - self._asked > self._idle:
                    self._thread = None
                    return
