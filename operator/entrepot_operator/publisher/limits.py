"""Limits on what a publisher writes, and how fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from entrepot.errors import InvalidArgument


@dataclass(frozen=True)
class Limits:
    """Limits of one node's publisher.

    Attributes:
        max_objects: number of LocalObjects. If there are more objects, the largest are published: they attract pods
            most.
        max_members: total number of member IDs in all GlobalObjects.
        min_bytes: smaller objects are not published.
        writes_per_second: on average.
        burst: writes allowed at once after an idle period.
        lease_seconds: how long objects count after the store was last heard from.
        scan_seconds: interval of scans of the store; longer if a scan takes long.
        resync_seconds: interval of reads of the API's state.

    Raises:
        InvalidArgument: a limit is out of range.
    """

    max_objects: int = 1000
    max_members: int = 8192
    min_bytes: int = 0
    writes_per_second: float = 20.0
    burst: int = 100
    lease_seconds: int = 60
    scan_seconds: float = 2.0
    resync_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name, minimum, maximum in (
            ("max_objects", 1, 10_000),
            ("max_members", 0, 65_536),
            ("min_bytes", 0, 1 << 62),
            ("writes_per_second", 0.1, 1000),
            ("burst", 1, 10_000),
            ("lease_seconds", 10, 3600),
            ("scan_seconds", 0.1, 3600),
            ("resync_seconds", 1, 86_400),
        ):
            value = getattr(self, name)
            if not minimum <= value <= maximum:
                raise InvalidArgument(f"{name} must be between {minimum} and {maximum}, but got {value!r}")


class RateLimiter:
    """Token bucket: limits the rate of writes, allowing a burst after an idle period.

    Args:
        rate: per second.
        burst: allowed at once.
        clock: monotonic seconds.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._refilled_at = clock()

    def try_acquire(self) -> bool:
        """Whether one more write is allowed now."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._rate)
        self._refilled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
