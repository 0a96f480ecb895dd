"""The placement as a table and as a picture."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from examples.flights.present.chart import ENTREPOT_COLORS, FAINT_COLOR, OTHER_COLORS, RULE_COLOR, TEXT_COLOR
from examples.flights.present.table import align_columns
from examples.kubernetes.pipeline import Task

COLUMNS = ("stage", "pod", "reads", "MB", "is on", "ran on", "without")
MB = 1e6
REMOTE_COLOR = "#c2410c"


NodeOf = Callable[[Task], str]


def transferred_bytes(stages: Sequence[Sequence[Task]], node_of: NodeOf) -> dict[str, int]:
    """Bytes to be transferred with this placement, by the name of the reading pod.

    Each pod reads the output of its branch's previous stage, which is on the node where that ran.
    """
    bytes_by_pod: dict[str, int] = {}
    for previous, stage in itertools.pairwise(stages):
        node_by_shard = {task.shard: node_of(task) for task in previous}
        bytes_by_pod |= {
            task.name: 0 if node_of(task) == node_by_shard[task.shard] else task.all_bytes for task in stage
        }
    return bytes_by_pod


def text_table(stages: Sequence[Sequence[Task]]) -> str:
    """A line for each pod with inputs, and the bytes that would have had to be transferred."""
    readers = [task for stage in stages for task in sorted(stage, key=lambda item: item.shard) if task.reads]
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
    total_bytes = sum(task.all_bytes for task in readers)
    local_bytes_as_run, local_bytes_without = (
        total_bytes - sum(transferred_bytes(stages, node_of).values())
        for node_of in (_actual_node, _node_without_injection)
    )
    closing = (
        f"local: {local_bytes_as_run / MB:.1f} of {total_bytes / MB:.1f} MB; "
        f"without injection: {local_bytes_without / MB:.1f} MB"
    )
    return align_columns(COLUMNS, rows, right=(3,)) + f"\n\n{closing}"


def _actual_node(task: Task) -> str:
    return task.node


def _node_without_injection(task: Task) -> str:
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

    style: Any = {"font.family": "DejaVu Sans", "font.size": 10, "text.color": TEXT_COLOR}
    with mpl.rc_context(style):
        figure, axes = plt.subplots(1, 2, figsize=(3.2 * len(nodes) + 3, 6.2), sharey=True)
        figure.subplots_adjust(left=0.07, right=0.985, top=0.79, bottom=0.04, wspace=0.06)
        _panel(axes[0], stages, nodes, _node_without_injection, "Without injection: the scheduler alone")
        _panel(axes[1], stages, nodes, _actual_node, "Pods that follow their data")
        for row, stage in enumerate(stages):
            axes[0].text(-0.62, -row, stage[0].stage, ha="right", va="center", fontsize=11.5, fontweight="bold")
        figure.text(0.02, 0.94, "One pipeline, placed by kube-scheduler", fontsize=16, fontweight="bold")
        subtitle = (
            "columns are nodes, boxes are pods; a line leads from the pod that made an object to the one that reads it"
        )
        figure.text(0.02, 0.9, subtitle, fontsize=10, color=FAINT_COLOR)
        figure.savefig(path, dpi=150, facecolor="white")
        plt.close(figure)


def _panel(axis: Any, stages: Sequence[Sequence[Task]], nodes: Sequence[str], node_of: NodeOf, title: str) -> None:
    column = {name: index for index, name in enumerate(nodes)}
    positions: dict[str, tuple[float, float]] = {}
    for row, stage in enumerate(stages):
        for name in nodes:
            tasks_on_node = sorted((task for task in stage if node_of(task) == name), key=lambda item: item.shard)
            for index, task in enumerate(tasks_on_node):
                positions[task.name] = (column[name] + 0.8 * ((index + 0.5) / len(tasks_on_node) - 0.5), -row)
    transfers = transferred_bytes(stages, node_of)
    total_bytes = sum(task.all_bytes for stage in stages for task in stage)
    largest = max((task.all_bytes for stage in stages for task in stage), default=0) or 1
    for previous, stage in itertools.pairwise(stages):
        sources = {task.shard: positions[task.name] for task in previous}
        for task in stage:
            (begin, above), (end, below) = sources[task.shard], positions[task.name]
            axis.plot(
                [begin, end],
                [above - 0.13, below + 0.13],
                color=REMOTE_COLOR if transfers[task.name] else ENTREPOT_COLORS[0],
                linewidth=1 + 5 * task.all_bytes / largest,
                alpha=0.85,
                solid_capstyle="round",
                zorder=2,
            )
    for task in (item for stage in stages for item in stage):
        is_remote = transfers.get(task.name, 0) > 0
        box = {
            "boxstyle": "round,pad=0.35",
            "facecolor": "white" if is_remote else (ENTREPOT_COLORS[1] if task.reads else OTHER_COLORS[1]),
            "edgecolor": REMOTE_COLOR if is_remote else TEXT_COLOR,
        }
        axis.text(*positions[task.name], task.shard, ha="center", va="center", fontsize=9.5, bbox=box, zorder=3)
    for name, index in column.items():
        axis.axvspan(index - 0.47, index + 0.47, color=RULE_COLOR, alpha=0.45, zorder=0)
        axis.text(index, 0.42, name, ha="center", va="center", fontsize=10, color=FAINT_COLOR)
    share = 100 * (total_bytes - sum(transfers.values())) / total_bytes if total_bytes else 100.0
    axis.set_title(f"{title}\n{share:.0f} % of {total_bytes / MB:.0f} MB local", loc="left", fontsize=11.5, pad=8)
    axis.set_xlim(-0.55, len(nodes) - 0.45)
    axis.set_ylim(-len(stages) + 0.55, 0.6)
    axis.set_xticks([])
    axis.set_yticks([])
    for side in axis.spines.values():
        side.set_visible(False)
