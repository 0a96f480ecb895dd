"""The first rows of a value as text: of tables, Arrow arrays, lists and dicts. Nothing else of the value is copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of a value.

    Attributes:
        columns: name and type of each column that is shown; empty where there is none.
        cells: of the rows, in their columns.
        rows: how many rows the value has.
        width: how many columns the value has.
        is_table: whether it has rows and columns; otherwise it has entries.
        has_index: whether the first column is the index of pandas.
    """

    columns: list[tuple[str, str]]
    cells: list[list[str]]
    rows: int
    width: int
    is_table: bool = True
    has_index: bool = False


def first_rows(
    value: Any, count: int, cell: Callable[[Any], str], *, max_columns: int | None = None, index: bool = True
) -> FirstRows | None:
    """Return the first rows; None: the value is of another kind.

    Args:
        value: a table, frame or series of Arrow, pandas or Polars, an array of Arrow, a list, tuple or dict.
        count: how many rows.
        cell: formats a cell.
        max_columns: how many columns of a table, beside its index; None: all.
        index: whether pandas' index is a column, the first one.
    """
    package = type(value).__module__.partition(".")[0]
    if package == "pyarrow" and hasattr(value, "schema"):
        shown = value.slice(0, count)
        fields = list(islice(value.schema, max_columns))
        by_row = zip(*(shown.column(number).to_pylist() for number in range(len(fields))), strict=True)
        columns = [(field.name, str(field.type)) for field in fields]
        return FirstRows(columns, _texts(by_row, cell), value.num_rows, len(value.schema))
    if package == "pyarrow" and hasattr(value, "slice") and hasattr(value, "to_pylist"):
        items = ([item] for item in value.slice(0, count).to_pylist())
        return FirstRows([("", str(value.type))], _texts(items, cell), len(value), 1, is_table=False)
    if package in ("pandas", "polars") and hasattr(value, "to_frame"):
        value = value.to_frame()
    if package == "pandas" and hasattr(value, "itertuples"):
        shown = value.iloc[:count, :max_columns]
        columns = [("", str(shown.index.dtype))] if index else []
        columns += [(str(name), str(dtype)) for name, dtype in zip(shown.columns, shown.dtypes, strict=True)]
        cells = _texts(shown.itertuples(index=index, name=None), cell)
        return FirstRows(columns, cells, value.shape[0], value.shape[1] + index, has_index=index)
    if package == "polars" and hasattr(value, "iter_rows"):
        shown = value[:count, : value.width if max_columns is None else min(max_columns, value.width)]
        columns = [(name, str(dtype)) for name, dtype in shown.schema.items()]
        return FirstRows(columns, _texts(shown.iter_rows(), cell), value.height, value.width)
    if isinstance(value, dict):
        entries = _texts(islice(value.items(), count), cell)
        return FirstRows([("key", ""), ("value", "")], entries, len(value), 2, is_table=False)
    if isinstance(value, (list, tuple)):
        entries = _texts(([item] for item in value[:count]), cell)
        return FirstRows([(type(value).__name__, "")], entries, len(value), 1, is_table=False)
    return None


def _texts(rows: Iterable[Any], cell: Callable[[Any], str]) -> list[list[str]]:
    return [[cell(item) for item in row] for row in rows]
