"""Values made of others by replacing, adding and dropping columns; what stays is shared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from entrepot._builders.arrow_fields import to_column
from entrepot.errors import InvalidArgument, UnsupportedType

Columns = Mapping[Any, Any]


def with_columns(value: Any, columns: Columns, drop: Iterable[Any]) -> Any:
    """Return the value with these columns replaced or added, and others dropped. It stays as it is.

    Args:
        value: a ``pyarrow.Table``, a pandas or Polars ``DataFrame``, or a dict.
        columns: values by name. Columns that exist keep their place; others are added at the end, in this order.
        drop: names of columns to leave out.

    Raises:
        InvalidArgument: a column to drop does not exist or is also replaced, or a column has another length than the
            table.
        UnsupportedType: the value has no columns.
    """
    if not isinstance(columns, Mapping):
        raise InvalidArgument(f"columns must be a mapping of names to values, but got {columns!r}")
    if isinstance(drop, (str, bytes)) or not isinstance(drop, Iterable):
        raise InvalidArgument(f"drop must be a list of names, such as ['price'], but got {drop!r}")
    dropped = list(dict.fromkeys(drop))
    for name, values in columns.items():
        if isinstance(values, (str, bytes)) and type(value) is not dict:
            raise InvalidArgument(f"the values for column {name!r} must be one for each row, but got {values!r}")
    names, change = _columns_of(value)
    both = [name for name in dropped if name in columns]
    if both:
        raise InvalidArgument(f"columns cannot be both replaced and dropped: {', '.join(map(repr, both))}")
    unknown = [name for name in dropped if name not in names]
    if unknown:
        raise InvalidArgument(f"there is no column {', '.join(map(repr, unknown))} to drop: the columns are {names}")
    if len(set(names)) != len(names):
        raise InvalidArgument(f"columns can only be replaced if their names differ, but got {names}")
    return change(value, columns, dropped)


def _columns_of(value: Any) -> tuple[list[Any], Callable[[Any, Columns, list[Any]], Any]]:
    if type(value) is dict:
        return list(value), _change_dict
    # A value of a library cannot exist before it is imported.
    pa, pd, pl = (sys.modules.get(module) for module in ("pyarrow", "pandas", "polars"))
    if pa is not None and isinstance(value, pa.Table):
        return value.column_names, _change_arrow
    if pd is not None and type(value) is pd.DataFrame:
        return list(value.columns), _change_pandas
    if pl is not None and type(value) is pl.DataFrame:
        return value.columns, _change_polars
    raise UnsupportedType(
        f"columns can be replaced in a pyarrow.Table, a pandas or Polars DataFrame or a dict, but the object is a "
        f"{type(value).__module__}.{type(value).__qualname__}"
    )


def _change_dict(value: dict[Any, Any], columns: Columns, dropped: list[Any]) -> Any:
    changed = {**value, **columns}
    for name in dropped:
        del changed[name]
    return changed


def _change_arrow(table: Any, columns: Columns, dropped: list[Any]) -> Any:
    import pyarrow as pa

    changed = table
    for name, values in columns.items():
        if not isinstance(name, str):
            raise InvalidArgument(f"the name of a column must be a string, but got {name!r}")
        column = to_column("the table", name, values)
        _check_length(name, column, table.num_rows)
        field = pa.field(name, column.type)
        index = table.schema.get_field_index(name)
        changed = changed.append_column(field, column) if index < 0 else changed.set_column(index, field, column)
    return changed.drop_columns(dropped) if dropped else changed


def _change_pandas(frame: Any, columns: Columns, dropped: list[Any]) -> Any:
    changed = frame.copy(deep=False)
    for name, values in columns.items():
        if hasattr(values, "__len__"):
            _check_length(name, values, len(frame))
        try:
            changed[name] = values
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"pandas cannot make column {name!r} of a {type(values).__name__}: {error}"
            ) from error
    for name in dropped:
        del changed[name]
    return changed


def _change_polars(frame: Any, columns: Columns, dropped: list[Any]) -> Any:
    import polars as pl

    added = []
    for name, values in columns.items():
        column = values.alias(name) if isinstance(values, pl.Series) else pl.Series(name, values)
        _check_length(name, column, frame.height)
        added.append(column)
    return frame.with_columns(added).drop(dropped)


def _check_length(name: Any, column: Any, rows: int) -> None:
    if len(column) != rows:
        raise InvalidArgument(f"column {name!r} has {len(column)} values, but the table has {rows} rows")
