"""The report's part about a table that three tasks hand on, and its goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.harness.text import bytes_text, grid, time_text

ORCHESTRATORS = ("airflow", "dagster", "kedro")
OURS = "entrepot"
SHARING_SECONDS = 0.1
PEAK_RATIO = 1.3
# Of the time that other transports take to share: Airflow's object storage and a pickle file, Kedro's
# SharedMemoryDataset and PickleDataset, Dagster's FilesystemIOManager and Parquet files.
SHARES = {
    "airflow": {"objectstorage": 1 / 30, "pickle": 1 / 8},
    "kedro": {"memory": 1 / 100, "pickle": 1 / 15},
    "dagster": {"files": 1 / 15, "parquet": 1 / 30},
}
NO_LONGER = {("airflow", "pickle"), ("dagster", "files")}  # runs that one with Entrepot may not exceed, end to end
INT64 = "int64"
COLUMNS = {
    INT64: "64-bit integers",
    "arrow-strings": "texts of 16 digits, as Arrow has them",
    "object-strings": "texts of 16 digits, as Python's own strings",
}


def sections(figures: dict[str, Any] | None) -> Iterator[str]:
    """The tables; nothing if it was not measured."""
    if not figures or not figures.get("lines"):
        return
    read_as = ", which are read from the store as Arrow's" if figures.get("object_strings") == "arrow" else ""
    yield (
        f"Three tasks hand on a table of {bytes_text(figures['bytes'])}: the first makes it, the second replaces one "
        f"of its eight columns, {COLUMNS[_kind(figures)]}{read_as}, the third sums it. Sharing "
        "is the time in all save and load calls. The peak is that of all processes and the store; without data, it is "
        "that of the same run with a table of 1 MiB, and the ratio that of the difference to the table:"
    )
    head = ["orchestrator", "transport", "values made in", "store", "sharing", "of it writing", "end to end", "stored"]
    head += ["peak", "without data", "ratio"]
    yield grid(
        head,
        [
            [
                *_case(line),
                time_text(line["sharing"]),
                time_text(line["writing"]),
                time_text(line["seconds"]),
                bytes_text(line["stored_bytes"]) if line["stored_bytes"] else "",
                bytes_text(line["peak"]),
                bytes_text(line["empty"]),
                f"{_ratio(figures, line):.2f}",
            ]
            for line in figures["lines"]
        ],
    )
    yield (
        "Where the memory is at the peak. Being made: lent to tasks that make values; not used: kept by the store for "
        "the next values; processes: all that is not the store's segments. Before the run: all processes and the "
        "store, and the ratio to the table of what is above that:"
    )
    head = ["orchestrator", "transport", "values made in", "store", "stored values", "being made", "not used"]
    yield grid(
        [*head, "processes", "before the run", "ratio"],
        [
            [
                *_case(line),
                *(bytes_text(line[f"peak_{part}"]) for part in ("stored", "leased", "kept", "own")),
                bytes_text(line["idle"]),
                f"{(line['peak'] - line['idle']) / figures['bytes']:.2f}",
            ]
            for line in figures["lines"]
        ],
    )


def _kind(figures: dict[str, Any]) -> str:
    return str(figures.get("columns", INT64))


def _case(line: dict[str, Any]) -> list[str]:
    made = ("the store" if line["allocate"] else "the process") if line["name"] == OURS else ""
    return [line["orchestrator"], line["label"], made, line["store"]]


def _ratio(figures: dict[str, Any], line: dict[str, Any]) -> float:
    ratio: float = (line["peak"] - line["empty"]) / figures["bytes"]
    return ratio


def judge(figures: dict[str, Any] | None, at_most: Callable[..., None]) -> None:
    """The goals of this part: for values made in the store, which starts a moment before the run."""
    lines = [] if figures is None else figures.get("lines", [])
    for orchestrator in ORCHESTRATORS:
        line = _fresh(lines, orchestrator)
        name = _goal_name(orchestrator)
        if figures is None or _kind(figures) == INT64:  # strings are not made in the store
            at_most(f"{name}: sharing in all", line and line["sharing"], SHARING_SECONDS)
        ratio = None if line is None or figures is None else _ratio(figures, line)
        at_most(f"{name}: peak memory over the table", ratio, PEAK_RATIO, lambda number: f"{number:.2f}")
    for orchestrator, shares in SHARES.items():
        ours, name = _fresh(lines, orchestrator), _goal_name(orchestrator)
        for transport, share in shares.items():
            others = (each for each in lines if (each["orchestrator"], each["name"]) == (orchestrator, transport))
            other = next(others, None)
            label = transport if other is None else other["label"]
            both = None if ours is None or other is None else (ours, other)
            sharing = both and both[0]["sharing"] / both[1]["sharing"]
            at_most(f"{name}: sharing over that of {label}", sharing, share, lambda number: f"{number:.4f}")
            if transport == "parquet":
                continue  # the goals of memory and of the whole run are those of the default transport
            peak = both and both[0]["peak"] / both[1]["peak"]
            at_most(f"{name}: peak memory over that of {label}", peak, 1.0, lambda number: f"{number:.2f}")
            if (orchestrator, transport) in NO_LONGER:
                seconds = both and both[0]["seconds"] / both[1]["seconds"]
                at_most(f"{name}: end to end over {label}", seconds, 1.0, lambda number: f"{number:.2f}")


def goal_table(figures: dict[str, Any]) -> str:
    """The goals of this part, as far as they were measured, as a table."""
    rows: list[list[str]] = []

    def at_most(what: str, value: float | None, most: float, text: Callable[[float], str] = time_text) -> None:
        if value is not None:
            rows.append([what, f"at most {text(most)}", text(value), "yes" if value <= most else "no"])

    judge(figures, at_most)
    return grid(["goal (values made in the store, which has just started)", "", "measured", "reached"], rows)


def _fresh(lines: list[dict[str, Any]], orchestrator: str) -> dict[str, Any] | None:
    """Return the line of an orchestrator's run in a fresh store in which values are made; None: not measured."""
    case = (orchestrator, OURS, "fresh", True)
    keys = ("orchestrator", "name", "store", "allocate")
    return next((line for line in lines if tuple(line[key] for key in keys) == case), None)


def _goal_name(orchestrator: str) -> str:
    return f"three tasks that hand on a table, {orchestrator.capitalize()}"
