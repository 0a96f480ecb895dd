"""Rows of results: pooled samples of many rounds, with the context needed to compare them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

WARM, FIRST = "warm", "first use"
FREE, SAME_CORE, TWO_CORES = "free", "same core", "two cores"


@dataclass(frozen=True)
class Key:
    """Identifies a row; rows that differ only in ``system`` are compared.

    Attributes:
        group: part of the benchmarks: ``small``, ``many``, ``large``, ``together``.
        state: type and size of the value: ``bytes 1 KiB``.
        operation: ``put``, ``get``, ``first sum``, ...
        use: ``warm`` or ``first use``.
        cpus: ``free``, ``same core`` (clients and server) or ``two cores`` (clients on one, server on another).
        system: the system measured; names of limits begin with ``limit:``.
    """

    group: str
    state: str
    operation: str
    use: str
    cpus: str
    system: str

    @property
    def case(self) -> tuple[str, str, str, str, str]:
        """All but the system."""
        return (self.group, self.state, self.operation, self.use, self.cpus)


@dataclass
class Row:
    """One line of the result. Times are seconds per operation.

    Attributes:
        nbytes: payload of one operation.
        samples: number of individual times; ``rounds``: number of turns they were taken in.
        cpu: processor seconds of one operation, client and server together; None: not measured.
        foreign: share of the processors kept busy by others meanwhile; median of the rounds.
        pages: kind of the pages that hold the value.
        batch: number of operations that one sample averages.
    """

    key: Key
    nbytes: int = 0
    samples: int = 0
    rounds: int = 0
    median: float = 0.0
    p5: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    best: float = 0.0
    cpu: float | None = None
    foreign: float = 0.0
    pages: str = ""
    batch: int = 1
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a flat dictionary, for files."""
        fields = asdict(self)
        key: dict[str, Any] = fields.pop("key")
        return key | fields

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Row:
        """Parse what ``to_json`` produced."""
        names = ("group", "state", "operation", "use", "cpus", "system")
        rest = {name: value for name, value in data.items() if name not in names}
        return cls(Key(*(data[name] for name in names)), **rest)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile of a sorted list, by linear interpolation."""
    if not ordered:
        raise ValueError("there is no quantile of nothing")
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Iterable[float]) -> float:
    """The median."""
    return quantile(sorted(values), 0.5)


@dataclass
class _Samples:
    nbytes: int = 0
    ns: list[float] = field(default_factory=list[float])
    cpus: list[float] = field(default_factory=list[float])
    foreign: list[float] = field(default_factory=list[float])
    pages: str = ""
    batch: int = 1
    note: str = ""


class Collector:
    """Collects the samples of all turns."""

    def __init__(self) -> None:
        self._samples: dict[Key, _Samples] = {}

    def add(
        self,
        key: Key,
        ns: Sequence[float],
        *,
        nbytes: int = 0,
        cpu_ns: float | None = None,
        foreign: float | None = None,
        pages: str = "",
        batch: int = 1,
        note: str = "",
    ) -> None:
        """Add one turn's samples.

        Args:
            key: what was measured.
            ns: individual times in nanoseconds.
            nbytes: payload of one operation.
            cpu_ns: processor time of one operation.
            foreign: see ``Row``.
            pages: see ``Row``.
            batch: number of operations that one sample averages.
            note: for the reader.
        """
        if not ns:
            return
        pile = self._samples.setdefault(key, _Samples())
        pile.ns.extend(ns)
        pile.nbytes, pile.batch = nbytes, batch
        pile.pages = pages or pile.pages
        pile.note = note or pile.note
        if cpu_ns is not None:
            pile.cpus.append(cpu_ns)
        pile.foreign.append(foreign or 0.0)

    def rows(self) -> list[Row]:
        """One row for each key, in insertion order, except that rows of the same case are adjacent."""
        order: dict[tuple[str, ...], list[Row]] = {}
        for key, pile in self._samples.items():
            ordered = sorted(pile.ns)
            middle, low, high, highest = (quantile(ordered, share) / 1e9 for share in (0.5, 0.05, 0.95, 0.99))
            row = Row(
                key,
                nbytes=pile.nbytes,
                samples=len(ordered),
                rounds=len(pile.foreign),
                median=middle,
                p5=low,
                p95=high,
                p99=highest,
                best=ordered[0] / 1e9,
                cpu=median(pile.cpus) / 1e9 if pile.cpus else None,
                foreign=round(median(pile.foreign), 3),
                pages=pile.pages,
                batch=pile.batch,
                note=pile.note,
            )
            order.setdefault(key.case, []).append(row)
        return [row for rows in order.values() for row in rows]
