"""Collections of tables as Arrow: schema, stream, table, batches. Holds one member at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument, UnsupportedType

if TYPE_CHECKING:
    from entrepot import Collection


def check(collection: Collection) -> None:
    """Reject a collection that does not hold tables.

    Raises:
        InvalidArgument: the members are not tables, or there are none to define the columns.
    """
    if collection.kind == "table":
        return
    if not collection.type:
        raise InvalidArgument(f"collection {collection.name!r} is empty, so it has no columns")
    raise InvalidArgument(
        f"collection {collection.name!r} holds {collection.type}, not tables: only Arrow tables, record batches, "
        "pandas and Polars data frames can be read as one"
    )


def schema_of(collection: Collection) -> Any:
    """The schema of all tables, taken from the first.

    Raises:
        InvalidArgument: the members are not tables.
    """
    import pyarrow as pa

    check(collection)
    message = collection.traits.schema
    if message is not None:
        return pa.ipc.read_schema(pa.py_buffer(message))
    if not len(collection):
        raise InvalidArgument(f"this slice of collection {collection.name!r} is empty, so it has no columns")
    return as_table(collection[0], None).schema  # it was put where pyarrow was not installed


def reader(collection: Collection, columns: Sequence[str] | None = None) -> Any:
    """All tables as one ``pyarrow.RecordBatchReader``; ``columns`` as for ``Collection.to_reader``."""
    import pyarrow as pa

    schema = projected_schema(collection, columns)
    return pa.RecordBatchReader.from_batches(schema, _record_batches(collection, schema, columns))


def table(collection: Collection) -> Any:
    """All tables as one ``pyarrow.Table`` with the members' chunks."""
    import pyarrow as pa

    schema = schema_of(collection)
    return pa.Table.from_batches(_record_batches(collection, schema, None), schema=schema)


def batches(collection: Collection, rows: int) -> Iterator[Any]:
    """Record batches of ``rows`` rows each; the last one may be smaller."""
    schema = schema_of(collection)
    return _equal_batches(_record_batches(collection, schema, None), rows)


def projected_schema(collection: Collection, columns: Sequence[str] | None) -> Any:
    """The schema of selected columns.

    Raises:
        InvalidArgument: there is no such column.
    """
    import pyarrow as pa

    schema = schema_of(collection)
    if columns is None:
        return schema
    column_names = set(schema.names)
    unknown = [name for name in columns if name not in column_names]
    if unknown:
        raise InvalidArgument(
            f"collection {collection.name!r} has no column {unknown[0]!r}: it has {', '.join(map(repr, schema.names))}"
        )
    return pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)


def as_table(value: Any, schema: Any, columns: Sequence[str] | None = None) -> Any:
    """A member as a ``pyarrow.Table``, without a copy if its library supports that.

    Args:
        value: the member.
        schema: the schema to cast to; None: its own.
        columns: the columns to keep; None: all.

    Raises:
        UnsupportedType: it has columns of Python objects.
    """
    import pyarrow as pa

    kind = type(value).__module__.partition(".")[0]
    if kind == "pyarrow":
        arrow_table = value if isinstance(value, pa.Table) else pa.Table.from_batches([value])
    elif kind == "polars":
        arrow_table = (value if columns is None else value.select(columns)).to_arrow()
    else:
        arrow_table = _from_pandas(pa, value, schema)
    if columns is not None:
        arrow_table = arrow_table.select(list(columns))
    if schema is None or arrow_table.schema.equals(schema, check_metadata=True):
        return arrow_table
    return arrow_table.cast(schema)


def _from_pandas(pa: Any, value: Any, schema: Any) -> Any:
    try:
        return pa.Table.from_pandas(value, schema=schema)
    except (pa.ArrowException, TypeError) as error:
        raise UnsupportedType(
            f"a pandas.DataFrame of the collection cannot be read as Arrow: {error}; put frames whose columns each "
            "hold a single type"
        ) from error


def _record_batches(collection: Collection, schema: Any, columns: Sequence[str] | None) -> Iterator[Any]:
    members = collection.iterate()
    for value in members:
        arrow_table = as_table(value, schema, columns)
        del value
        for batch in arrow_table.to_batches():
            yield batch
            del batch
        del arrow_table


def _equal_batches(pieces: Iterator[Any], rows: int) -> Iterator[Any]:
    import pyarrow as pa

    pending: list[Any] = []
    pending_rows = 0
    for piece in pieces:
        at = 0
        while pending_rows + piece.num_rows - at >= rows:
            pending.append(piece.slice(at, rows - pending_rows))
            at += rows - pending_rows
            complete, pending, pending_rows = pending, [], 0
            yield complete[0] if len(complete) == 1 else pa.concat_batches(complete)
        if at < piece.num_rows:
            pending.append(piece.slice(at))
            pending_rows += piece.num_rows - at
    if pending:
        yield pending[0] if len(pending) == 1 else pa.concat_batches(pending)
