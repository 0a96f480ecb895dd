"""Work queue: holds each key once, supports delays, and retries failures with back-off."""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 120.0


class WorkQueue(Generic[K]):
    """Keys for one worker, added from any thread. A key added while it is queued stays queued once, at the earlier
    time.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: dict[K, float] = {}  # this and the following: guarded by _changed
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        """Number of queued keys, including delayed ones."""
        with self._changed:
            return len(self._due)

    def add(self, key: K, delay: float = 0.0) -> None:
        """Queue a key.

        Args:
            key: the key.
            delay: delay in seconds.
        """
        with self._changed:
            self._add(key, self._clock() + delay)

    def _add(self, key: K, due: float) -> None:
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        self._changed.notify()

    def take(self, seconds: float) -> K | None:
        """The next key that is due; None: none within the timeout."""
        end = self._clock() + seconds
        with self._changed:
            while True:
                while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
                    heapq.heappop(self._heap)  # queued again for an earlier time, or gone
                now = self._clock()
                if self._heap and self._heap[0][0] <= now:
                    _, _, key = heapq.heappop(self._heap)
                    del self._due[key]
                    return key
                if now >= end:
                    return None
                self._changed.wait(min(end, self._heap[0][0] if self._heap else end) - now)

    def retry(self, key: K) -> float:
        """Requeue a key with exponential back-off; returns the delay in seconds."""
        with self._changed:
            count = self._failures.get(key, 0)
            self._failures[key] = count + 1
            pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(count, 20)) * random.uniform(0.75, 1.0)
            self._add(key, self._clock() + pause)
            return pause

    def reset_backoff(self, key: K) -> None:
        """Reset the back-off of a key."""
        with self._changed:
            self._failures.pop(key, None)

    def clear(self) -> None:
        """Drop all keys and failures."""
        with self._changed:
            self._due.clear()
            self._heap.clear()
            self._failures.clear()
