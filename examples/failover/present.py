"""The results as a table and as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.failover.faults import FAULT_LABELS
from examples.failover.runs import Row
from examples.flights.present.chart import ENTREPOT_COLORS, FAINT_COLOR, RULE_COLOR, TEXT_COLOR
from examples.flights.present.table import align_columns

COLUMNS = ("orchestrator", "fault", "seconds", "from scratch", "reloaded", "rerun")


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table, in the order of ``COLUMNS``."""
    return (
        row.orchestrator,
        FAULT_LABELS[row.fault],
        f"{row.seconds:.1f}",
        f"{row.scratch:.1f}" if row.fault != "none" else "",
        ", ".join(row.reloaded) or "-",
        ", ".join(row.rerun) or "-",
    )


def text_table(rows: Sequence[Row]) -> str:
    """The table for a terminal, with a blank line between orchestrators."""
    return align_columns(COLUMNS, [cells(row) for row in rows], right=(2, 3))


def draw(rows: Sequence[Row], subtitle: str, path: Path) -> None:
    """Draw the chart into a PNG file: one bar for each run, split at the fault, compared with a rerun from scratch.

    Args:
        rows: the runs, grouped by orchestrator.
        subtitle: one line on the data.
        path: of the file.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    style: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": TEXT_COLOR,
        "axes.labelcolor": TEXT_COLOR,
    }
    positions: list[float] = []
    next_position = 0.0
    for previous, row in zip([None, *rows], rows, strict=False):
        next_position += 0.0 if previous is None else (1.0 if previous.orchestrator == row.orchestrator else 2.0)
        positions.append(next_position)
    with mpl.rc_context(style):
        height = 2.2 + 0.5 * (positions[-1] + 1.5)
        figure, axis = plt.subplots(figsize=(12, height))
        figure.subplots_adjust(left=0.24, right=0.97, top=1 - 1.15 / height, bottom=0.7 / height)
        for position, row in zip(positions, rows, strict=True):
            if row.fault != "none":
                axis.barh(position, row.scratch, height=0.8, color=RULE_COLOR)
            axis.barh(position, row.until_fault, height=0.5, color=ENTREPOT_COLORS[1])
            axis.barh(
                position, row.seconds - row.until_fault, left=row.until_fault, height=0.5, color=ENTREPOT_COLORS[0]
            )
            labels = [f"{row.seconds:.1f} s"]
            labels += [f"reloaded {', '.join(row.reloaded)}"] if row.reloaded else []
            labels += [f"rerun {', '.join(row.rerun)}"] if row.rerun else []
            axis.text(
                max(row.seconds, row.scratch if row.fault != "none" else 0.0),
                position,
                "  " + "; ".join(labels),
                va="center",
                fontsize=9,
            )
        axis.set_yticks(positions, [f"{row.orchestrator.capitalize()}, {FAULT_LABELS[row.fault]}" for row in rows])
        axis.invert_yaxis()
        axis.set_xlim(0, 1.45 * max(max(row.seconds, row.scratch) for row in rows))
        axis.set_xlabel("seconds; light: before the fault, dark: after it, grey: a rerun from scratch")
        axis.grid(axis="x", color=RULE_COLOR, linewidth=0.8)
        axis.set_axisbelow(True)
        axis.tick_params(axis="both", length=0)
        for side in axis.spines.values():
            side.set_visible(False)
        figure.text(
            0.02, 1 - 0.42 / height, "Faults injected while the model is trained", fontsize=16, fontweight="bold"
        )
        figure.text(0.02, 1 - 0.72 / height, subtitle, fontsize=10, color=FAINT_COLOR)
        figure.savefig(path, dpi=150, facecolor="white")
        plt.close(figure)
