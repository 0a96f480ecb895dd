"""The first rows of a value, for ``entrepot get --head``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from entrepot._cli.common import table
from entrepot.errors import UnsupportedType
from entrepot.phrases import count_of

MAX_CELL = 200


@dataclass(frozen=True, slots=True)
class Head:
    """The first rows of a value.

    Attributes:
        columns: what each column holds, such as ``"price double"``.
        rows: their cells.
        total: how many rows the value has.
        what: what a row is: ``"row"`` or ``"entry"``.
    """

    columns: list[str]
    rows: list[list[str]]
    total: int
    what: str = "row"


def head_of(value: Any, count: int) -> Head:
    """Return the first rows of a table or of an array, or the first entries of a list or dict; others are not copied.

    Raises:
        UnsupportedType: the value has no rows.
    """
    package = type(value).__module__.partition(".")[0]
    if package == "pyarrow" and hasattr(value, "schema"):
        shown = value.slice(0, count)
        columns = [f"{field.name} {field.type}" for field in value.schema]
        cells = zip(*(shown.column(index).to_pylist() for index in range(len(columns))), strict=True)
        return Head(columns, _texts(cells), value.num_rows)
    if package == "pyarrow" and hasattr(value, "slice"):
        return Head([str(value.type)], _texts([item] for item in value.slice(0, count).to_pylist()), len(value))
    if package in ("pandas", "polars") and hasattr(value, "to_frame"):
        value = value.to_frame()
    if package == "pandas" and hasattr(value, "itertuples"):
        columns = ["", *(f"{name} {dtype}" for name, dtype in zip(value.columns, value.dtypes, strict=True))]
        return Head(columns, _texts(value.iloc[:count].itertuples(name=None)), len(value))
    if package == "polars" and hasattr(value, "iter_rows"):
        columns = [f"{name} {dtype}" for name, dtype in value.schema.items()]
        return Head(columns, _texts(value[:count].iter_rows()), len(value))
    if package == "numpy" and getattr(value, "ndim", 0) > 0:
        return Head([f"{value.dtype} {value.shape}"], _texts([item] for item in value[:count].tolist()), len(value))
    if isinstance(value, dict):
        return Head(["key", "value"], _texts(islice(value.items(), count)), len(value), "entry")
    if isinstance(value, (list, tuple)):
        return Head([type(value).__name__], _texts([item] for item in value[:count]), len(value), "entry")
    raise UnsupportedType(f"a {type(value).__name__} has no rows of which --head could show the first")


def format_head(head: Head) -> str:
    """Format it for people."""
    lines = [table(head.rows, head.columns)]
    if head.total > len(head.rows):
        total = count_of(head.total, "row") if head.what == "row" else f"{head.total} entries"
        lines.append(f"{len(head.rows)} of {total}")
    return "\n".join(lines)


def _texts(rows: Any) -> list[list[str]]:
    return [[_cut(str(cell)) for cell in row] for row in rows]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"
