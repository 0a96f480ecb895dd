"""The operator's metrics, in Prometheus' text format."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

Sample = tuple[str, Mapping[str, str], float]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Own counters, and samples from other sources. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._sources: list[Callable[[], Iterable[Sample]]] = []

    def count(self, name: str, by: float = 1.0, **labels: str) -> None:
        """Add to a counter; by convention its name ends in ``_total``, ``_sum`` or ``_count``."""
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._counters[key] = self._counters.get(key, 0.0) + by

    def add_source(self, source: Callable[[], Iterable[Sample]]) -> None:
        """Register a function that is called at each scrape for samples: name, labels, value."""
        self._sources.append(source)

    def text(self) -> str:
        """All samples as text."""
        with self._lock:
            samples: list[Sample] = [(name, dict(labels), value) for (name, labels), value in self._counters.items()]
        for source in self._sources:
            samples.extend(source())
        by_name: dict[str, list[Sample]] = {}
        for sample in samples:
            by_name.setdefault(_family(sample[0]), []).append(sample)
        lines: list[str] = []
        for family, group in sorted(by_name.items()):
            lines.append(f"# TYPE {family} {_type(family, group)}")
            lines += [f"{name}{_labels(labels)} {value:.17g}" for name, labels, value in group]
        return "\n".join(lines) + "\n"


def _family(name: str) -> str:
    """The metric family: samples of a histogram or summary share one."""
    for end in ("_bucket", "_sum", "_count"):
        if name.endswith(end):
            return name.removesuffix(end)
    return name


def _type(family: str, group: list[Sample]) -> str:
    if any(name.endswith("_bucket") for name, _, _ in group):
        return "histogram"
    if any(name.endswith(("_sum", "_count")) for name, _, _ in group):
        return "summary"
    return "counter" if family.endswith("_total") else "gauge"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
