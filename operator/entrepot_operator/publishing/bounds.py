"""What a publisher may write at most, and how fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from entrepot.errors import InvalidArgument


@dataclass(frozen=True)
class Bounds:
    """Limits of one node's publisher.

    Attributes:
        max_objects: LocalObjects. Of more objects the largest are published: they draw most.
        max_members: IDs of members in all GlobalObjects together.
        min_bytes: smaller objects are not published.
        writes_per_second: on average.
        burst: writes at once after a quiet time.
        lease_seconds: how long objects count after the store was last heard of.
        scan_seconds: between two looks at the store; longer where a look takes long.
        resync_seconds: between two looks at what the API has.

    Raises:
        InvalidArgument: a limit is out of its range.
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
        for name, least, most in (
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
            if not least <= value <= most:
                raise InvalidArgument(f"{name} is between {least} and {most}, but got {value!r}")


class Pace:
    """Lets through so many writes a second, and a burst after a quiet time.

    Args:
        rate: a second.
        burst: at once.
        clock: seconds that only grow.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._at = clock()

    def take(self) -> bool:
        """Whether one more write may go now."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
