"""Asks a store for its status, at an interval and from a thread, so that no scrape waits for a store that hangs.

(no status) --answer--> (fresh) --no answer for MAX_AGE_INTERVALS intervals--> (stale) --answer--> (fresh)
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import entrepot
from entrepot.errors import EntrepotError

log = logging.getLogger(__name__)
MAX_AGE_INTERVALS = 3.0


class StatusPoller:
    """Has the latest status of a store; connects again when it has been away.

    Args:
        address: of the store, ``unix:///path``.
        interval: seconds between two questions.
    """

    def __init__(self, address: str, interval: float) -> None:
        self._address = address
        self._interval = interval
        self._lock = threading.Lock()
        self._status: dict[str, Any] | None = None  # guarded by _lock, as the next
        self._asked_at = 0.0  # by time.monotonic(); when the question was sent that _status answers
        self._tried = threading.Event()  # the first question was answered, or failed
        self._ended = threading.Event()
        self._was_there = True  # of the thread
        self._thread = threading.Thread(target=self._poll, name="entrepot-status", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any] | None:
        """Return the latest status; None: the store has not answered for a while."""
        with self._lock:
            age = time.monotonic() - self._asked_at
            return self._status if self._status is not None and age < MAX_AGE_INTERVALS * self._interval else None

    def wait_tried(self, seconds: float) -> bool:
        """Wait until the first question was answered or failed: until then, no status says nothing about the store."""
        return self._tried.wait(seconds)

    def close(self) -> None:
        """Stop asking. A question that a store does not answer is not waited for."""
        self._ended.set()

    def _poll(self) -> None:
        store: entrepot.Store | None = None
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                store = store or entrepot.connect(self._address)
                status = store.status()
            except EntrepotError as error:
                if self._was_there:
                    log.warning("the store does not answer, and is asked again every %g s: %s", self._interval, error)
                self._was_there = False
            else:
                if not self._was_there:
                    log.warning("the store answers again")
                self._was_there = True
                with self._lock:
                    self._status, self._asked_at = status, began
            self._tried.set()
            self._ended.wait(max(self._interval - (time.monotonic() - began), 0.01))
        if store is not None:
            store.close()
