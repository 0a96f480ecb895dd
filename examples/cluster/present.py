"""The results as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from examples.flights.measure.meter import CallTotals
from examples.flights.present.table import align_columns
from examples.flights.runs import MB

COLUMNS = (
    "transport",
    "run",
    "sharing s",
    "write s",
    "read s",
    "moved MB",
    "end to end s",
    "hosts",
    "reloaded",
    "rerun",
)
LABELS = {"entrepot": "Entrepot", "files": "files in a shared folder"}


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        transport: how its tasks passed values on.
        killed: the host that was killed; empty: none.
        seconds: duration of the run.
        totals: of its save and load calls.
        hosts: those on which tasks began.
        reloaded: tasks whose output was loaded from a checkpoint.
        rerun: tasks that began more than once, with how often.
        report: the job's answer.
    """

    transport: str
    killed: str
    seconds: float
    totals: CallTotals
    hosts: tuple[str, ...]
    reloaded: tuple[str, ...]
    rerun: tuple[str, ...]
    report: dict[str, Any]

    @property
    def sharing_seconds(self) -> float:
        """Time in save and load calls."""
        return self.totals.write_seconds + self.totals.read_seconds

    @property
    def run(self) -> str:
        """What kind of run it was, in words."""
        return f"{self.killed} killed" if self.killed else "undisturbed"


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table, in the order of ``COLUMNS``."""
    totals = row.totals
    return (
        LABELS[row.transport],
        row.run,
        f"{row.sharing_seconds:.2f}",
        f"{totals.write_seconds:.2f}",
        f"{totals.read_seconds:.2f}",
        f"{(totals.written + totals.read) / MB:.0f}",
        f"{row.seconds:.1f}",
        ", ".join(row.hosts),
        ", ".join(row.reloaded) or "-",
        ", ".join(row.rerun) or "-",
    )


def text_table(rows: Sequence[Row]) -> str:
    """The table for a terminal."""
    return align_columns(COLUMNS, [cells(row) for row in rows], right=(2, 3, 4, 5, 6))


def comparison(rows: Sequence[Row]) -> str:
    """A sentence that compares the undisturbed runs; empty if one of the transports has none."""
    medians = {}
    for name in LABELS:
        times = [row.sharing_seconds for row in rows if row.transport == name and not row.killed]
        if not times:
            return ""
        medians[name] = median(times)
    return (
        f"Sharing, median of the undisturbed runs: {medians['entrepot']:.2f} s with Entrepot, "
        f"{medians['files']:.2f} s with files in a shared folder."
    )
