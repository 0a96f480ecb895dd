"""Taking times, and saying on which machine."""

from __future__ import annotations

import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One row of the result.

    Attributes:
        case: what was done to what, the same for every way of doing it.
        way: who did it: ``entrepot``, ``memcpy``, ``pickle to tmpfs``.
        median_seconds, best_seconds, worst_seconds: over ``repeats`` repetitions, of one operation.
        nbytes: payload of one operation; 0 where that says nothing.
    """

    case: str
    way: str
    median_seconds: float
    best_seconds: float
    worst_seconds: float
    repeats: int
    nbytes: int

    @classmethod
    def of(cls, case: str, way: str, seconds: list[float], nbytes: int = 0) -> Figure:
        """Sums up the repetitions."""
        return cls(case, way, statistics.median(seconds), min(seconds), max(seconds), len(seconds), nbytes)


class Stopwatch:
    """``with Stopwatch() as watch: ...``; then ``watch.seconds``."""

    seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._begin = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begin


def machine() -> dict[str, Any]:
    """What a reader needs to judge the figures."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    versions = {}
    for package in ("entrepot", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        **versions,
    }


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def table(figures: list[Figure]) -> str:
    """The figures as a Markdown table; the last column says how many times longer each takes than ``entrepot``."""
    ours = {figure.case: figure.median_seconds for figure in figures if figure.way == "entrepot"}
    rows = [["case", "way", "median", "best", "worst", "GiB/s", "times entrepot"]]
    for figure in figures:
        rate = f"{figure.nbytes / figure.median_seconds / 2**30:.2f}" if figure.nbytes >= 1 << 20 else ""
        base = ours.get(figure.case)
        ratio = f"{figure.median_seconds / base:.3g}" if base else ""
        times = [_time(figure.median_seconds), _time(figure.best_seconds), _time(figure.worst_seconds)]
        rows.append([figure.case, figure.way, *times, rate, ratio])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def as_json(figures: list[Figure]) -> list[dict[str, Any]]:
    """The figures for a file."""
    return [asdict(figure) for figure in figures]
