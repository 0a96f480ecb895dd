"""Checks of Arrow columns against a schema; every error names the column and both types."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from entrepot.errors import InvalidArgument


def checked_schema(schema: Any) -> Any:
    """Return the ``pyarrow.Schema``.

    Raises:
        InvalidArgument: it is something else, or PyArrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise InvalidArgument("building tables needs PyArrow: pip install pyarrow")
    import pyarrow as pa

    if not isinstance(schema, pa.Schema):
        raise InvalidArgument(f"the schema of a table must be a pyarrow.Schema, but got {schema!r}")
    return schema


def check_names(what: str, names: list[str], expected: list[str]) -> None:
    """Check that the columns of ``what`` are those expected, in this order."""
    if names == expected:
        return
    missing = [name for name in expected if name not in names]
    unknown = [name for name in names if name not in expected]
    if missing or unknown:
        problems = [
            f"{problem} {', '.join(map(repr, columns))}"
            for problem, columns in (("it lacks", missing), ("the table has no", unknown))
            if columns
        ]
        raise InvalidArgument(f"{what} does not have the columns of the table: {'; '.join(problems)}")
    raise InvalidArgument(
        f"{what} has its columns in the order {names}, but the table's order is {expected}: select them in this order"
    )


def check_column(what: str, field: Any, column: Any) -> None:
    """Check that the column of ``what`` has the type of its field, and no nulls if the field allows none.

    Args:
        what: names what the column belongs to, for messages.
        field: the ``pyarrow.Field``.
        column: a ``pyarrow.Array`` or ``pyarrow.ChunkedArray``.
    """
    if column.type != field.type:
        raise InvalidArgument(
            f"column {field.name!r} of {what} has type {column.type}, but in the table it has type {field.type}: "
            "cast it, or build the table with another schema"
        )
    if not field.nullable and column.null_count:
        raise InvalidArgument(
            f"column {field.name!r} of {what} has {column.null_count} nulls, but in the table, of type {field.type}, "
            "it is not nullable"
        )


def to_column(what: str, name: str, values: Any, type_: Any = None) -> Any:
    """Return the values as a ``pyarrow.Array`` or ``pyarrow.ChunkedArray``; Arrow's own as they are.

    Args:
        what: names what the column belongs to, for messages.
        name: the column's name.
        values: anything that ``pyarrow.array`` takes.
        type_: the type to convert other values to; None: as Arrow infers it.

    Raises:
        InvalidArgument: Arrow cannot convert the values.
    """
    import pyarrow as pa

    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        return pa.array(values, type=type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        target = f"type {type_}" if type_ is not None else "an Arrow type"
        raise InvalidArgument(
            f"the values for column {name!r} of {what}, of type {type(values).__name__}, cannot be converted to "
            f"{target}: {error}"
        ) from error
