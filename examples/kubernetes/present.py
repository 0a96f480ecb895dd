"""The placement as a table and as a picture."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from examples.flights.present.chart import FAINT, INK, OTHERS, OURS, RULE
from examples.flights.present.table import laid_out
from examples.kubernetes.pipeline import Task

COLUMNS = ("stage", "pod", "reads", "MB", "is on", "ran on", "without")
MB = 1e6
FAR = "#c2410c"


Where = Callable[[Task], str]


def moved(stages: Sequence[Sequence[Task]], where: Where) -> dict[str, int]:
    """Bytes to be transferred with this placement, by the name of the reading pod.

    Each pod reads the output of its branch's previous stage, which is on the node where that ran.
    """
    found: dict[str, int] = {}
    for before, stage in itertools.pairwise(stages):
        home = {task.shard: where(task) for task in before}
        found |= {task.name: 0 if where(task) == home[task.shard] else task.all_bytes for task in stage}
    return found


def text_table(stages: Sequence[Sequence[Task]]) -> str:
    """A line for each pod with inputs, and the bytes that would have had to be transferred."""
    readers = [task for stage in stages for task in sorted(stage, key=lambda one: one.shard) if task.reads]
    rows = [
        (
            task.stage,
            task.name,
            ", ".join(task.reads),
            f"{task.all_bytes / MB:.1f}",
            ", ".join(sorted(set(task.homes.values()))),
            task.node,
            task.elsewhere,
        )
        for task in readers
    ]
    whole = sum(task.all_bytes for task in readers)
    ours, theirs = (whole - sum(moved(stages, where).values()) for where in (_ran, _without))
    closing = f"local: {ours / MB:.1f} of {whole / MB:.1f} MB; without their wishes: {theirs / MB:.1f} MB"
    return laid_out(COLUMNS, rows, right=(3,)) + f"\n\n{closing}"


def _ran(task: Task) -> str:
    return task.node


def _without(task: Task) -> str:
    return task.elsewhere


def draw(stages: Sequence[Sequence[Task]], nodes: Sequence[str], path: Path) -> None:
    """Draw two placements of the same pods into a PNG file: without injection, and as they ran.

    A column is a node, a row a stage. A line leads from the pod that made an object to the one that reads it, its width
    proportional to the object's size; if it leaves its column, the bytes must be transferred.

    Args:
        stages: of the pipeline, completed.
        nodes: in column order.
        path: of the file.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    style: Any = {"font.family": "DejaVu Sans", "font.size": 10, "text.color": INK}
    with mpl.rc_context(style):
        figure, axes = plt.subplots(1, 2, figsize=(3.2 * len(nodes) + 3, 6.2), sharey=True)
        figure.subplots_adjust(left=0.07, right=0.985, top=0.79, bottom=0.04, wspace=0.06)
        _panel(axes[0], stages, nodes, _without, "Without: the scheduler alone")
        _panel(axes[1], stages, nodes, _ran, "Pods that follow their data")
        for row, stage in enumerate(stages):
            axes[0].text(-0.62, -row, stage[0].stage, ha="right", va="center", fontsize=11.5, fontweight="bold")
        figure.text(0.02, 0.94, "One pipeline, placed by kube-scheduler", fontsize=16, fontweight="bold")
        subtitle = (
            "columns are nodes, boxes are pods; a line leads from the pod that made an object to the one that reads it"
        )
        figure.text(0.02, 0.9, subtitle, fontsize=10, color=FAINT)
        figure.savefig(path, dpi=150, facecolor="white")
        plt.close(figure)


def _panel(axis: Any, stages: Sequence[Sequence[Task]], nodes: Sequence[str], where: Where, title: str) -> None:
    column = {name: place for place, name in enumerate(nodes)}
    spots: dict[str, tuple[float, float]] = {}
    for row, stage in enumerate(stages):
        for name in nodes:
            here = sorted((task for task in stage if where(task) == name), key=lambda one: one.shard)
            for place, task in enumerate(here):
                spots[task.name] = (column[name] + 0.8 * ((place + 0.5) / len(here) - 0.5), -row)
    far = moved(stages, where)
    whole = sum(task.all_bytes for stage in stages for task in stage)
    most = max((task.all_bytes for stage in stages for task in stage), default=0) or 1
    for before, stage in itertools.pairwise(stages):
        made = {task.shard: spots[task.name] for task in before}
        for task in stage:
            (begin, above), (end, below) = made[task.shard], spots[task.name]
            axis.plot(
                [begin, end],
                [above - 0.13, below + 0.13],
                color=FAR if far[task.name] else OURS[0],
                linewidth=1 + 5 * task.all_bytes / most,
                alpha=0.85,
                solid_capstyle="round",
                zorder=2,
            )
    for task in (one for stage in stages for one in stage):
        away = far.get(task.name, 0) > 0
        box = {
            "boxstyle": "round,pad=0.35",
            "facecolor": "white" if away else (OURS[1] if task.reads else OTHERS[1]),
            "edgecolor": FAR if away else INK,
        }
        axis.text(*spots[task.name], task.shard, ha="center", va="center", fontsize=9.5, bbox=box, zorder=3)
    for name, place in column.items():
        axis.axvspan(place - 0.47, place + 0.47, color=RULE, alpha=0.45, zorder=0)
        axis.text(place, 0.42, name, ha="center", va="center", fontsize=10, color=FAINT)
    share = 100 * (whole - sum(far.values())) / whole if whole else 100.0
    axis.set_title(f"{title}\n{share:.0f} % of {whole / MB:.0f} MB local", loc="left", fontsize=11.5, pad=8)
    axis.set_xlim(-0.55, len(nodes) - 0.45)
    axis.set_ylim(-len(stages) + 0.55, 0.6)
    axis.set_xticks([])
    axis.set_yticks([])
    for side in axis.spines.values():
        side.set_visible(False)
