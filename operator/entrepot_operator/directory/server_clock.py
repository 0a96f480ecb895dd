"""The API server's clock, of which each response shows the second in its ``Date``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone

MOST_UNCERTAIN_SECONDS = 3600.0  # before any response


class ServerClock:
    """Narrows down how far the server's clock is ahead of this machine's monotonic one. For any number of threads.

    A response whose date is D, to a request sent at S and answered at R, was dated between S and R, when the server's
    clock showed D to D + 1. Several responses together leave a range much shorter than a second. A response that
    contradicts those before shows that a clock was set: then only the new one counts.

    Args:
        monotonic: this machine's clock.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._range: tuple[float, float] | None = None  # guarded by _lock

    def note(self, date: datetime, sent_at: float, answered_at: float) -> None:
        """Note a response: its date, and when the request was sent and answered by the monotonic clock."""
        least, most = date.timestamp() - answered_at, date.timestamp() + 1.0 - sent_at
        with self._lock:
            before = self._range
            if before is not None and max(least, before[0]) <= min(most, before[1]):
                least, most = max(least, before[0]), min(most, before[1])
            self._range = (least, most)

    def now(self) -> float:
        """Seconds since 1970; before the first response, by this machine's clock."""
        with self._lock:
            if self._range is None:
                return time.time()
            return self._monotonic() + sum(self._range) / 2

    def uncertainty(self) -> float:
        """By how many seconds ``now`` may be wrong in either direction."""
        with self._lock:
            return MOST_UNCERTAIN_SECONDS if self._range is None else (self._range[1] - self._range[0]) / 2


def timestamp(seconds: float) -> str:
    """Seconds since 1970 as Kubernetes writes them, in microseconds."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
