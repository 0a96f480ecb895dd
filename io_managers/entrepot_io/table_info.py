"""What people want to see of a table without opening it: columns, number of rows, the first of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from entrepot_io.type_info import type_name

MAX_CELL_CHARACTERS = 80
MAX_COLUMNS = 50


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        name: as text.
        type: as its library writes it.
        nullable: whether it may have nulls, as far as the schema says.
    """

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True)
class TableInfo:
    """A table in brief.

    Attributes:
        rows: their number; None: only a query would tell.
        columns: in order.
        head: the first rows as text, each with as many cells as ``head_columns`` says; cells and columns that are too
            many are cut off.
        head_columns: names of the columns of ``head``.
    """

    rows: int | None
    columns: list[Column]
    head: list[list[str]] = field(default_factory=list[list[str]])
    head_columns: list[str] = field(default_factory=list[str])

    def head_markdown(self) -> str:
        """The first rows as a Markdown table; empty if there are none."""
        if not self.head:
            return ""
        lines = [self.head_columns, ["---"] * len(self.head_columns), *self.head]
        return "\n".join("| " + " | ".join(map(_escape, line)) + " |" for line in lines)


def table_info(value: Any, head_rows: int = 0) -> TableInfo | None:
    """Describe a table of pandas, Polars or Arrow, or a collection of tables; None: it is something else.

    Args:
        value: reads no column beyond the first rows.
        head_rows: how many of these.
    """
    describe = _DESCRIPTIONS.get(type_name(value))
    return None if describe is None else describe(value, head_rows)


def _pandas(frame: Any, head_rows: int) -> TableInfo:
    columns = [Column(str(name), str(dtype)) for name, dtype in zip(frame.columns, frame.dtypes, strict=True)]
    head = frame.iloc[:head_rows, :MAX_COLUMNS]
    rows = [[_cell(value) for value in row] for row in head.itertuples(index=False, name=None)]
    return TableInfo(len(frame), columns, rows, [column.name for column in columns[:MAX_COLUMNS]])


def _polars(frame: Any, head_rows: int) -> TableInfo:
    columns = [Column(name, str(dtype)) for name, dtype in frame.schema.items()]
    head = frame[:head_rows, : min(MAX_COLUMNS, frame.width)]
    return TableInfo(
        frame.height, columns, [[_cell(value) for value in row] for row in head.rows()], list(head.columns)
    )


def _arrow(table: Any, head_rows: int) -> TableInfo:
    columns = [Column(each.name, str(each.type), each.nullable) for each in table.schema]
    head = table.slice(0, head_rows).select(list(range(min(MAX_COLUMNS, len(columns)))))
    cells = [[_cell(value) for value in column.to_pylist()] for column in head.columns]
    return TableInfo(
        table.num_rows, columns, [list(row) for row in zip(*cells, strict=True)], [each.name for each in head.schema]
    )


def _collection(collection: Any, head_rows: int) -> TableInfo | None:
    if collection.rows is None or collection.row_shape is not None:
        return None
    first = table_info(collection[0], head_rows)
    return None if first is None else TableInfo(collection.rows, first.columns, first.head, first.head_columns)


def _cell(value: Any) -> str:
    text = str(value)
    return text if len(text) <= MAX_CELL_CHARACTERS else text[: MAX_CELL_CHARACTERS - 1] + "…"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


_DESCRIPTIONS: dict[str, Callable[[Any, int], TableInfo | None]] = {
    "pandas.DataFrame": _pandas,
    "polars.DataFrame": _polars,
    "pyarrow.Table": _arrow,
    "entrepot.Collection": _collection,
}
