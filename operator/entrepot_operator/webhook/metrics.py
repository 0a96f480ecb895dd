"""The webhook's counters, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from prometheus_client import Counter, Histogram, Metric
from prometheus_client.registry import Collector

# injected: the pod was changed; unchanged: there was nothing to do; unknown: required information is not available now;
# invalid: its annotations, or the request, are invalid; late: deadline exceeded; failed: an internal error.
Result = Literal["injected", "unchanged", "unknown", "invalid", "late", "failed"]
RESULTS: tuple[Result, ...] = get_args(Result)
BUCKET_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)  # seconds


class Counters(Collector):
    """Reviews by result, and their duration. Thread-safe."""

    def __init__(self) -> None:
        self._reviews = Counter(
            "entrepot_admission_reviews", "Reviews of pods, by the result.", ["result"], registry=None
        )
        for result in RESULTS:
            self._reviews.labels(result)  # so that those that have not occurred are 0
        self._seconds = Histogram(
            "entrepot_admission_seconds", "Seconds that a review took.", buckets=BUCKET_BOUNDS, registry=None
        )

    def add(self, result: Result, seconds: float) -> None:
        """Count one review."""
        self._reviews.labels(result).inc()
        self._seconds.observe(seconds)

    def results(self) -> dict[str, int]:
        """Number of reviews by result."""
        (metric,) = self._reviews.collect()
        return {
            sample.labels["result"]: int(sample.value) for sample in metric.samples if sample.name.endswith("_total")
        }

    def collect(self) -> Iterator[Metric]:
        """All of them, as Prometheus' library wants them."""
        yield from self._reviews.collect()
        yield from self._seconds.collect()
