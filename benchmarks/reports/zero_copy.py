"""The report's part about values that are put without a copy, and its goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.harness.text import bytes_text, grid, time_text
from benchmarks.reports import table_handoff

OURS, PEER, READER = "Entrepot", "Arrow IPC", "PyArrow"
HUGE = "shared, 2 MiB"
MIB = 1 << 20


def sections(figures: dict[str, Any]) -> Iterator[str]:
    """The tables; nothing for what was not measured."""
    yield from _pipeline(figures.get("pipeline"))
    yield from _column(figures.get("column"))
    yield from _seal(figures.get("seal"))
    yield from decoding_sections(figures.get("decoding"))
    yield from table_handoff.sections(figures.get("handoff"))
    failures = figures.get("failures")
    if failures:
        yield "Not measured:"
        yield "\n".join(f"- {name}: {' '.join(reason.split())[-300:]}" for name, reason in failures.items())


def _pipeline(pipeline: dict[str, Any] | None) -> Iterator[str]:
    if not pipeline:
        return
    ours, peer = pipeline[OURS], pipeline[PEER]
    yield (
        f"A table of {bytes_text(pipeline['bytes'])}; each step is a process that gets it, adds a column of "
        f"{bytes_text(pipeline['column'])}, and stores the result. Bytes stored and time of each step, without "
        "Python's start; of the time, computing the column:"
    )
    head = ["step", "stored", "peer: stored", "time", "of it computing", "peer: time", "of it computing", "ratio"]
    lines = []
    for step in range(len(ours["bytes"])):
        cells = [str(step + 1), bytes_text(ours["bytes"][step]), bytes_text(peer["bytes"][step])]
        for side in (ours, peer):
            cells += [time_text(side["seconds"][step]), time_text(side["making"][step])]
        lines.append([*cells, f"{peer['seconds'][step] / ours['seconds'][step]:.2f}"])
    stored, written = sum(ours["bytes"]), sum(peer["bytes"])
    cells = ["all", bytes_text(stored), bytes_text(written)]
    for side in (ours, peer):
        cells += [time_text(sum(side["seconds"])), time_text(sum(side["making"]))]
    lines.append([*cells, f"{sum(peer['seconds']) / sum(ours['seconds']):.2f}"])
    yield grid(head, lines)


def _column(column: dict[str, Any] | None) -> Iterator[str]:
    if not column:
        return
    yield (
        f"A column of {bytes_text(column['bytes'])} appended to a stored table and put: {time_text(column['store'])} "
        f"if it was made in the store ({column['pages']} pages), {time_text(column['process'])} if not."
    )


def _seal(seal: list[dict[str, Any]] | None) -> Iterator[str]:
    if not seal:
        return
    yield "Putting a value that was made in the store, and one that was not:"
    head = ["value", "size", "made in the store", "of it encoding", "not", "ratio", "pages"]
    lines = [
        [
            line["value"],
            bytes_text(line["bytes"]),
            time_text(line["store"]),
            time_text(line["encoding"]),
            time_text(line["process"]),
            f"{line['process'] / line['store']:.1f}",
            line["pages"],
        ]
        for line in seal
    ]
    yield grid(head, lines)


def decoding_sections(decoding: dict[str, dict[str, dict[str, float]]] | None) -> Iterator[str]:
    """The table of ``python -m benchmarks decoding``."""
    if not decoding:
        return
    yield (
        "One Parquet file, read by many processes at once, and by one that makes a table which others can map; the "
        "peer decodes in each process, and copies the table to tmpfs for others:"
    )
    head = [
        "work",
        "by",
        "decoded by",
        "time",
        "ratio",
        "processors",
        "ratio",
        "of it sharing",
        "ratio",
        "peak of a process",
    ]
    rows = []
    for work, by in decoding.items():
        for who, figures in by.items():
            row = [work, who, f"{figures['decoders']:.0f}", time_text(figures["seconds"])]
            row.append(f"{by[READER]['seconds'] / figures['seconds']:.2f}")
            row += [time_text(figures["cpu"]), f"{by[READER]['cpu'] / max(figures['cpu'], 1e-9):.2f}"]
            by_one = work == "one"
            row += [time_text(figures["sharing"]) if by_one else "", _sharing_ratio(by, who) if by_one else ""]
            row += [bytes_text(figures["peak"]), bytes_text(_memory(figures))]
            row.append(f"{_memory(by[READER]) / max(_memory(figures), 1):.2f}")
            rows.append(row)
    yield grid([*head, "of all and the store", "ratio"], rows)


def _sharing_ratio(by: dict[str, dict[str, float]], who: str) -> str:
    return f"{by[READER]['sharing'] / by[who]['sharing']:.2f}"


def _memory(figures: dict[str, float]) -> float:
    return figures["peaks"] + figures["store"] + figures["copy"]


def judge(
    figures: dict[str, Any], at_most: Callable[..., None], at_least: Callable[[str, float | None, float], None]
) -> None:
    """The goals of this part."""

    def ratio(number: float) -> str:
        return f"{number:.2f}"

    pipeline = figures.get("pipeline") or {}
    ours = pipeline.get(OURS)
    stored = max(ours["bytes"]) / pipeline["column"] if ours else None
    at_most("pipeline that adds columns: bytes stored in a step over the new column, most", stored, 1.01, ratio)
    at_most("the same: time of the last three steps over that of the first three", _growth(ours), 1.25, ratio)
    column = figures.get("column") or {}
    most = 2e-3 if column.get("pages", HUGE) == HUGE else 5e-3
    at_most(f"put of a table with a new column, made in the store{_size(column)}", column.get("store"), most)
    for line in figures.get("seal") or [{"value": "any"}]:
        at_most(f"put of a value made in the store, {line['value']}{_size(line)}", line.get("store"), 1e-3)
    decoding = figures.get("decoding")

    def over(work: str, what: str) -> float | None:
        return decoding[work][READER][what] / decoding[work][OURS][what] if decoding else None

    at_least("one Parquet file read by 25 processes, PyArrow's time over ours", over("many", "seconds"), 7.0)
    at_least("Parquet file to shared table, decoding and copying as Arrow IPC over ours", over("one", "seconds"), 1.8)
    at_least("the same without the time in which decoded data is awaited", over("one", "sharing"), 1.8)
    table_handoff.judge(figures.get("handoff"), at_most)


def _size(line: dict[str, Any]) -> str:
    return f", {bytes_text(line['bytes'])}" if "bytes" in line else ""


def _growth(side: dict[str, Any] | None) -> float | None:
    if not side:
        return None
    few = min(3, len(side["seconds"]))
    growth: float = sum(side["seconds"][-few:]) / sum(side["seconds"][:few])
    return growth
