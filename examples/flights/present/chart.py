"""The chart: one row per run, one panel per figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.flights.runs import MB, Figures

ENTREPOT_COLORS = ("#0f766e", "#5eb8ae")
OTHER_COLORS = ("#64748b", "#b4bfcd")
TEXT_COLOR = "#1e293b"
FAINT_COLOR = "#64748b"
RULE_COLOR = "#e2e8f0"


@dataclass(frozen=True)
class Panel:
    """One figure of all runs.

    Attributes:
        title: above it.
        parts: names of the two parts of a bar; the second is empty for an undivided bar.
        values: the two parts of a run's bar.
        unit: after the number at the end of the bar.
        digits: decimal places of that number.
    """

    title: str
    parts: tuple[str, str]
    values: Callable[[Figures], tuple[float, float]]
    unit: str
    digits: int


PANELS = (
    Panel("Data sharing", ("write", "read"), lambda row: (row.write_seconds, row.read_seconds), "s", 2),
    Panel(
        "Bytes copied",
        ("files and sockets", "shared memory"),
        lambda row: ((row.bytes_written + row.bytes_read) / MB, row.bytes_stored / MB),
        "MB",
        0,
    ),
    Panel(
        "Peak memory (PSS)",
        ("before the run", "added by the run"),
        lambda row: (row.idle_bytes / MB, (row.peak_bytes - row.idle_bytes) / MB),
        "MB",
        0,
    ),
    Panel("End to end", ("", ""), lambda row: (row.run_seconds, 0.0), "s", 1),
)


def positions(rows: Sequence[Figures]) -> list[float]:
    """Vertical position of each run's bar, top-down, with a gap between orchestrators."""
    bar_positions: list[float] = []
    next_position = 0.0  # the first orchestrator's name is above it, at -1
    for previous, row in zip([None, *rows], rows, strict=False):
        if previous is not None:
            next_position += 1.0 if previous.orchestrator == row.orchestrator else 2.1
        bar_positions.append(next_position)
    return bar_positions


def draw(rows: Sequence[Figures], subtitle: str, path: Path) -> None:
    """Draw the chart into a PNG file.

    Args:
        rows: the runs, grouped by orchestrator.
        subtitle: one line on the data and the machine.
        path: of the file.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    bar_positions = positions(rows)
    style: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": TEXT_COLOR,
        "axes.labelcolor": TEXT_COLOR,
    }
    with mpl.rc_context(style):
        height = 2.1 + 0.4 * (bar_positions[-1] + 2.2)
        figure, axes = plt.subplots(1, len(PANELS), figsize=(15, height), sharey=True)
        # Margins in inches, so that titles keep their place for any number of runs.
        figure.subplots_adjust(left=0.14, right=0.985, top=1 - 1.25 / height, bottom=0.55 / height, wspace=0.1)
        for panel, axis in zip(PANELS, axes, strict=True):
            _draw_panel(axis, panel, rows, bar_positions)
        labels = axes[0]
        labels.set_yticks(bar_positions, [row.label for row in rows])
        labels.set_ylim(bar_positions[-1] + 0.6, -1.6)
        for tick, row in zip(labels.get_yticklabels(), rows, strict=True):
            tick.set_color(ENTREPOT_COLORS[0] if row.name == "entrepot" else TEXT_COLOR)
            tick.set_fontweight("bold" if row.name == "entrepot" else "normal")
        for orchestrator in dict.fromkeys(row.orchestrator for row in rows):
            first = next(
                position for position, row in zip(bar_positions, rows, strict=True) if row.orchestrator == orchestrator
            )
            labels.text(
                -0.015,
                first - 0.9,
                orchestrator.capitalize(),
                transform=labels.get_yaxis_transform(),
                fontsize=11.5,
                fontweight="bold",
                va="center",
                ha="right",
            )
        figure.text(0.02, 1 - 0.42 / height, "One job on three orchestrators", fontsize=16, fontweight="bold")
        figure.text(0.02, 1 - 0.72 / height, subtitle, fontsize=10, color=FAINT_COLOR)
        figure.savefig(path, dpi=150, facecolor="white")
        plt.close(figure)


def _draw_panel(axis: Any, panel: Panel, rows: Sequence[Figures], bar_positions: Sequence[float]) -> None:
    largest = max(sum(panel.values(row)) for row in rows) or 1.0
    for position, row in zip(bar_positions, rows, strict=True):
        dark, light = ENTREPOT_COLORS if row.name == "entrepot" else OTHER_COLORS
        first, second = panel.values(row)
        axis.barh(position, first, height=0.66, color=dark)
        axis.barh(position, second, left=first, height=0.66, color=light)
        number = f"{first + second:,.{panel.digits}f} {panel.unit}"
        axis.text(
            first + second + largest * 0.015,
            position,
            number,
            va="center",
            fontsize=9.5,
            fontweight="bold" if row.name == "entrepot" else "normal",
        )
    axis.set_xlim(0, largest * 1.28)  # space for the longest bar's number
    axis.set_title(panel.title, loc="left", fontsize=11.5, fontweight="bold", pad=18)
    if panel.parts[0]:
        axis.text(
            0,
            1.015,
            f"dark: {panel.parts[0]}, light: {panel.parts[1]}",
            transform=axis.transAxes,
            fontsize=8.5,
            color=FAINT_COLOR,
            va="bottom",
        )
    axis.grid(axis="x", color=RULE_COLOR, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(axis="both", length=0, labelsize=9.5)
    axis.tick_params(axis="x", colors=FAINT_COLOR, labelsize=8.5)
    axis.locator_params(axis="x", nbins=4)
    for side in axis.spines.values():
        side.set_visible(False)
