"""The first rows of a value as text: of tables, Arrow arrays, lists and dicts. Nothing else of the value is copied.

Showing a value never fails: a cell that has no form in Python, such as a time beyond the year 9999, has Arrow's text of
it or, where Arrow has none, the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from entrepot.library_errors import is_library_error, reason_of


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
        columns = [(cell(field.name), cell(str(field.type))) for field in fields]
        cells = [_of_arrow(shown.column(number), cell) for number in range(len(fields))]
        return FirstRows(columns, _by_row(cells), value.num_rows, len(value.schema))
    if package == "pyarrow" and hasattr(value, "slice") and hasattr(value, "to_pylist"):
        items = _by_row([_of_arrow(value.slice(0, count), cell)])
        return FirstRows([("", cell(str(value.type)))], items, len(value), 1, is_table=False)
    if package in ("pandas", "polars") and hasattr(value, "to_frame"):
        value = value.to_frame()
    if package == "pandas" and hasattr(value, "itertuples"):
        shown = value.iloc[:count, :max_columns]
        columns = [("", str(shown.index.dtype))] if index else []
        columns += [
            (cell_text(name, lambda label: cell(str(label))), cell(str(dtype)))
            for name, dtype in zip(shown.columns, shown.dtypes, strict=True)
        ]
        cells = [_of_pandas(shown.index, cell)] if index else []
        cells += [_of_pandas(shown.iloc[:, number], cell) for number in range(shown.shape[1])]
        return FirstRows(columns, _by_row(cells), value.shape[0], value.shape[1] + index, has_index=index)
    if package == "polars" and hasattr(value, "iter_rows"):
        shown = value[:count, : value.width if max_columns is None else min(max_columns, value.width)]
        columns = [(cell(name), cell(str(dtype))) for name, dtype in shown.schema.items()]
        return FirstRows(
            columns, _by_row([_of_polars(c, cell) for c in shown.get_columns()]), value.height, value.width
        )
    if isinstance(value, dict):
        entries = _texts(islice(value.items(), count), cell)
        return FirstRows([("key", ""), ("value", "")], entries, len(value), 2, is_table=False)
    if isinstance(value, (list, tuple)):
        entries = _texts(([item] for item in value[:count]), cell)
        return FirstRows([(type(value).__name__, "")], entries, len(value), 1, is_table=False)
    return None


def cell_text(value: Any, cell: Callable[[Any], str]) -> str:
    """Return a value as a cell; of one that has no text, as when its ``__repr__`` raises, the reason.

    Args:
        value: anything.
        cell: formats it.
    """
    try:
        return cell(value)
    except BaseException as error:
        return _not_shown(error, cell)


def _not_shown(error: BaseException, cell: Callable[[Any], str]) -> str:
    """What is shown for a value that a library cannot show."""
    if not is_library_error(error):
        raise error
    return cell(f"<not shown: {reason_of(error)}>")


def _cells_of(
    values: Callable[[], Iterable[Any]], instead: Callable[[BaseException], list[str]], cell: Callable[[Any], str]
) -> list[str]:
    """The values of a column as cells; where its library cannot give them, what is shown instead."""
    try:
        listed = list(values())
    except BaseException as error:
        if not is_library_error(error):
            raise
        return instead(error)
    return [cell_text(value, cell) for value in listed]


def _of_arrow(column: Any, cell: Callable[[Any], str]) -> list[str]:
    def one_by_one(_: BaseException) -> list[str]:
        return [_arrow_cell(column.slice(row, 1), cell) for row in range(len(column))]

    return _cells_of(column.to_pylist, one_by_one, cell)


def _arrow_cell(item: Any, cell: Callable[[Any], str]) -> str:
    """An array of one item as a cell: as Python has it, else in Arrow's words, else the reason."""
    import pyarrow as pa

    try:
        return cell(item.to_pylist()[0])
    except BaseException as error:
        if not is_library_error(error):
            raise
        reason = error
    try:
        return cell(item.cast(pa.string()).to_pylist()[0])
    except (pa.ArrowException, UnicodeDecodeError):  # no such cast, an unknown time zone, text that is no UTF-8
        pass
    try:
        if isinstance(item, pa.ChunkedArray):
            item = item.combine_chunks()
        text = "" if isinstance(item, pa.ChunkedArray) else item.to_string(skip_new_lines=True)
    except (pa.ArrowException, UnicodeDecodeError):
        text = ""
    is_plain = text.startswith("[") and text.endswith("]")  # structs and dictionaries are written in several parts
    return cell(text[1:-1]) if is_plain else _not_shown(reason, cell)


def _of_pandas(column: Any, cell: Callable[[Any], str]) -> list[str]:
    """A column or an index."""

    def by_arrow(error: BaseException) -> list[str]:
        if type(column.dtype).__name__ != "ArrowDtype":
            return [_not_shown(error, cell)] * len(column)
        import pyarrow as pa

        return _of_arrow(pa.array(column.array), cell)

    return _cells_of(lambda: column, by_arrow, cell)


def _of_polars(column: Any, cell: Callable[[Any], str]) -> list[str]:
    def by_arrow(_: BaseException) -> list[str]:
        try:
            array = column.to_arrow()
        except BaseException as error:
            return [_not_shown(error, cell)] * len(column)
        return _of_arrow(array, cell)

    return _cells_of(column.to_list, by_arrow, cell)


def _by_row(columns: list[list[str]]) -> list[list[str]]:
    return [list(row) for row in zip(*columns, strict=True)]


def _texts(rows: Iterable[Any], cell: Callable[[Any], str]) -> list[list[str]]:
    return [[cell_text(item, cell) for item in row] for row in rows]
