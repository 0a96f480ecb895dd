"""Follows the instances of a server that cannot be waited for, by asking it several times a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from entrepot_cluster.directory.backends.interface import LeaseChange, RecordChange

POLL_SECONDS = 0.25


class PollingSubscription:
    """See :class:`~entrepot_cluster.directory.backends.interface.Subscription`.

    Args:
        cursor: that of the snapshot.
        ask: returns the cursor that a snapshot would have now.
    """

    def __init__(self, cursor: str, ask: Callable[[], str]) -> None:
        self._cursor = cursor
        self._ask = ask
        self._closed = threading.Event()

    def wait(self, seconds: float) -> list[RecordChange | LeaseChange] | None:
        """See the interface; it never names the changes, but asks for a new snapshot."""
        end = time.monotonic() + seconds
        while True:
            if self._ask() != self._cursor:
                return None
            left = end - time.monotonic()
            if left <= 0 or self._closed.wait(min(POLL_SECONDS, left)):
                return []

    def close(self) -> None:
        """See the interface."""
        self._closed.set()
