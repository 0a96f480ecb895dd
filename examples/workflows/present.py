"""The results as a table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from examples.flights.present.table import align_columns
from examples.flights.runs import MB
from examples.workflows.measure import Figures
from examples.workflows.registry import WORKFLOWS
from examples.workflows.transports import LABELS

COLUMNS = (
    "workflow",
    "transport",
    "sharing s",
    "times Entrepot",
    "write s",
    "read s",
    "compute s",
    "values MB",
    "peak MB",
    "Entrepot's peak",
)


def medians(rows: Sequence[Figures], workflow: str, transport: str) -> Figures | None:
    """The run with the median time of sharing; ``None``: there is none."""
    runs = sorted(
        (row for row in rows if (row.workflow, row.transport) == (workflow, transport)),
        key=lambda row: row.sharing_seconds,
    )
    return runs[(len(runs) - 1) // 2] if runs else None


def _peak(rows: Sequence[Figures], workflow: str, transport: str) -> float:
    return median(row.peak_bytes for row in rows if (row.workflow, row.transport) == (workflow, transport))


def text_table(rows: Sequence[Figures]) -> str:
    """The table for a terminal: medians of all rounds."""
    lines = []
    for workflow in WORKFLOWS:
        entrepot = medians(rows, workflow, "entrepot")
        for transport, label in LABELS.items():
            row = medians(rows, workflow, transport)
            if row is None:
                continue
            peak = _peak(rows, workflow, transport)
            compared = entrepot is not None and row is not entrepot
            lines.append(
                (
                    WORKFLOWS[workflow].label,
                    label,
                    f"{row.sharing_seconds:.2f}",
                    f"{row.sharing_seconds / entrepot.sharing_seconds:.1f}" if compared and entrepot else "",
                    f"{row.write_seconds:.2f}",
                    f"{row.read_seconds:.2f}",
                    f"{row.compute_seconds:.2f}",
                    f"{row.bytes_written / MB:.0f}",
                    f"{peak / MB:.0f}",
                    f"{_peak(rows, workflow, 'entrepot') / peak:.2f}" if compared else "",
                )
            )
    return align_columns(COLUMNS, lines, right=range(2, len(COLUMNS)))


def summary(rows: Sequence[Figures]) -> list[str]:
    """For each other transport, a sentence that compares it with Entrepot on average of the workflows."""
    sentences = []
    for transport, label in LABELS.items():
        ratios, peaks = [], []
        for workflow in WORKFLOWS:
            ours, theirs = medians(rows, workflow, "entrepot"), medians(rows, workflow, transport)
            if ours is not None and theirs is not None and ours is not theirs:
                ratios.append(theirs.sharing_seconds / ours.sharing_seconds)
                peaks.append(_peak(rows, workflow, "entrepot") / _peak(rows, workflow, transport))
        if ratios:
            sentences.append(
                f"{label}: {fmean(ratios):.1f} times as long as with Entrepot on average, {min(ratios):.1f} at least; "
                f"Entrepot's memory is {fmean(peaks):.2f} of its on average"
            )
    return sentences
