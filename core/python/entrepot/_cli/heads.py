"""The first rows of a value, for ``entrepot get --head``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from entrepot._cli.common import table
from entrepot.errors import UnsupportedType
from entrepot.first_rows import cell_text, first_rows
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
    if type(value).__module__.partition(".")[0] == "numpy" and getattr(value, "ndim", 0) > 0:
        cells = [[cell_text(item, _cell)] for item in value[:count].tolist()]
        return Head([f"{value.dtype} {value.shape}"], cells, len(value))
    shown = first_rows(value, count, _cell)
    if shown is not None:
        columns = [f"{name} {kind}" if shown.is_table else name or kind for name, kind in shown.columns]
        if shown.has_index:
            columns[0] = ""
        entries = isinstance(value, (dict, list, tuple))
        return Head(columns, shown.cells, shown.rows, "entry" if entries else "row")
    raise UnsupportedType(f"a {type(value).__name__} has no rows of which --head could show the first")


def format_head(head: Head) -> str:
    """Format it for people."""
    lines = [table(head.rows, head.columns)]
    if head.total > len(head.rows):
        total = count_of(head.total, "row") if head.what == "row" else f"{head.total} entries"
        lines.append(f"{len(head.rows)} of {total}")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    text = str(value)
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"
