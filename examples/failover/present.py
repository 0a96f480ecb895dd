"""The results as a table and as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.failover.faults import WHAT
from examples.failover.runs import Row
from examples.flights.present.chart import FAINT, INK, OURS, RULE
from examples.flights.present.table import laid_out

COLUMNS = ("host", "fault", "seconds", "from scratch", "reloaded", "rerun")


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table, in the order of ``COLUMNS``."""
    return (
        row.host,
        WHAT[row.fault],
        f"{row.seconds:.1f}",
        f"{row.scratch:.1f}" if row.fault != "none" else "",
        ", ".join(row.reloaded) or "-",
        ", ".join(row.rerun) or "-",
    )


def text_table(rows: Sequence[Row]) -> str:
    """The table for a terminal, with a blank line between orchestrators."""
    return laid_out(COLUMNS, [cells(row) for row in rows], right=(2, 3))


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

    style: Any = {"font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, "axes.labelcolor": INK}
    places: list[float] = []
    at = 0.0
    for before, row in zip([None, *rows], rows, strict=False):
        at += 0.0 if before is None else (1.0 if before.host == row.host else 2.0)
        places.append(at)
    with mpl.rc_context(style):
        height = 2.2 + 0.5 * (places[-1] + 1.5)
        figure, axis = plt.subplots(figsize=(12, height))
        figure.subplots_adjust(left=0.24, right=0.97, top=1 - 1.15 / height, bottom=0.7 / height)
        for place, row in zip(places, rows, strict=True):
            if row.fault != "none":
                axis.barh(place, row.scratch, height=0.8, color=RULE)
            axis.barh(place, row.until_fault, height=0.5, color=OURS[1])
            axis.barh(place, row.seconds - row.until_fault, left=row.until_fault, height=0.5, color=OURS[0])
            said = [f"{row.seconds:.1f} s"]
            said += [f"reloaded {', '.join(row.reloaded)}"] if row.reloaded else []
            said += [f"rerun {', '.join(row.rerun)}"] if row.rerun else []
            axis.text(
                max(row.seconds, row.scratch if row.fault != "none" else 0.0),
                place,
                "  " + "; ".join(said),
                va="center",
                fontsize=9,
            )
        axis.set_yticks(places, [f"{row.host.capitalize()}, {WHAT[row.fault]}" for row in rows])
        axis.invert_yaxis()
        axis.set_xlim(0, 1.45 * max(max(row.seconds, row.scratch) for row in rows))
        axis.set_xlabel("seconds; light: till the plug was pulled, dark: after it, grey behind: a rerun from scratch")
        axis.grid(axis="x", color=RULE, linewidth=0.8)
        axis.set_axisbelow(True)
        axis.tick_params(axis="both", length=0)
        for side in axis.spines.values():
            side.set_visible(False)
        figure.text(
            0.02, 1 - 0.42 / height, "The plug pulled while the model is trained", fontsize=16, fontweight="bold"
        )
        figure.text(0.02, 1 - 0.72 / height, subtitle, fontsize=10, color=FAINT)
        figure.savefig(path, dpi=150, facecolor="white")
        plt.close(figure)
