"""What people want to see of a table without opening it: columns, number of rows, the first of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from entrepot.first_rows import cell_text, first_rows
from entrepot.library_errors import is_library_error, reason_of

from entrepot_io.type_info import type_name

MAX_CELL_CHARACTERS = 80
MAX_NAME_CHARACTERS = 255  # of a column in a schema
MAX_TYPE_CHARACTERS = 1000
MAX_COLUMNS = 50

log = logging.getLogger("entrepot")


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        name: as text, of which the first 255 characters are kept.
        type: as its library writes it, of which the first 1,000 characters are kept.
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

    It is for display: where a library cannot say what its table has, the result is None, and a warning says why.

    Args:
        value: reads no column beyond the first rows.
        head_rows: how many of these.
    """
    describe = _DESCRIPTIONS.get(type_name(value))
    if describe is None:
        return None
    try:
        return describe(value, head_rows)
    except BaseException as error:
        if not is_library_error(error):
            raise
        log.warning("Entrepot: a %s is not described on the pages: %s", type_name(value), reason_of(error))
        return None


def _pandas(frame: Any, head_rows: int) -> TableInfo:
    columns = [_column(name, dtype) for name, dtype in zip(frame.columns, frame.dtypes, strict=True)]
    return _with_head(frame, columns, head_rows)


def _polars(frame: Any, head_rows: int) -> TableInfo:
    return _with_head(frame, [_column(name, dtype) for name, dtype in frame.schema.items()], head_rows)


def _arrow(table: Any, head_rows: int) -> TableInfo:
    return _with_head(table, [_column(each.name, each.type, each.nullable) for each in table.schema], head_rows)


def _column(name: Any, type_: Any, nullable: bool = True) -> Column:
    shown = cell_text(name, lambda label: _cut(str(label), MAX_NAME_CHARACTERS))
    return Column(shown, cell_text(type_, lambda each: _cut(str(each), MAX_TYPE_CHARACTERS)), nullable)


def _with_head(table: Any, columns: list[Column], head_rows: int) -> TableInfo:
    shown = first_rows(table, head_rows, _cell, max_columns=MAX_COLUMNS, index=False)
    assert shown is not None
    return TableInfo(shown.rows, columns, shown.cells, [name for name, _ in shown.columns])


def _collection(collection: Any, head_rows: int) -> TableInfo | None:
    if collection.rows is None or collection.row_shape is not None:
        return None
    first = table_info(collection[0], head_rows)
    return None if first is None else TableInfo(collection.rows, first.columns, first.head, first.head_columns)


def _cell(value: Any) -> str:
    return _cut(str(value), MAX_CELL_CHARACTERS)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


_DESCRIPTIONS: dict[str, Callable[[Any, int], TableInfo | None]] = {
    "pandas.DataFrame": _pandas,
    "polars.DataFrame": _polars,
    "pyarrow.Table": _arrow,
    "entrepot.Collection": _collection,
}
