"""The webhook's counters."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal, get_args

# injected: the pod was changed; unchanged: there was nothing to do; unknown: required information is not available now;
# invalid: its annotations, or the request, are invalid; late: deadline exceeded; failed: an internal error.
Result = Literal["injected", "unchanged", "unknown", "invalid", "late", "failed"]
RESULTS: tuple[Result, ...] = get_args(Result)
BUCKET_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)  # seconds

Sample = tuple[str, dict[str, str], float]


class Counters:
    """Reviews by result, and their duration. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[Result, int] = dict.fromkeys(RESULTS, 0)  # this and the following: guarded by _lock
        self._buckets = [0] * (len(BUCKET_BOUNDS) + 1)
        self._seconds = 0.0

    def add(self, result: Result, seconds: float) -> None:
        """Count one review."""
        with self._lock:
            self._results[result] += 1
            self._buckets[bisect_left(BUCKET_BOUNDS, seconds)] += 1
            self._seconds += seconds

    def results(self) -> dict[str, int]:
        """Number of reviews by result."""
        with self._lock:
            return {str(result): count for result, count in self._results.items()}

    def samples(self) -> Iterator[Sample]:
        """Name, labels and value of each number, as Prometheus counters and histograms."""
        with self._lock:
            results, buckets, seconds = dict(self._results), list(self._buckets), self._seconds
        for result, count in results.items():
            yield "entrepot_admission_reviews_total", {"result": result}, count
        cumulative = 0
        for bound, count in zip((*map(str, BUCKET_BOUNDS), "+Inf"), buckets, strict=True):
            cumulative += count
            yield "entrepot_admission_seconds_bucket", {"le": bound}, cumulative
        yield "entrepot_admission_seconds_sum", {}, seconds
        yield "entrepot_admission_seconds_count", {}, cumulative
