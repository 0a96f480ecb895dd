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
        f"collection {collection.name!r} holds {collection.type}, not tables: members that are Arrow tables, record "
        "batches, pandas or Polars data frames can be read as one"
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

    wanted = projected(collection, columns)
    return pa.RecordBatchReader.from_batches(wanted, _record_batches(collection, wanted, columns))


def table(collection: Collection) -> Any:
    """All tables as one ``pyarrow.Table`` with the members' chunks."""
    import pyarrow as pa

    schema = schema_of(collection)
    return pa.Table.from_batches(_record_batches(collection, schema, None), schema=schema)


def batches(collection: Collection, rows: int) -> Iterator[Any]:
    """Record batches of ``rows`` rows each; the last one may be smaller."""
    schema = schema_of(collection)
    return _equal_batches(_record_batches(collection, schema, None), rows)


def projected(collection: Collection, columns: Sequence[str] | None) -> Any:
    """The schema of selected columns.

    Raises:
        InvalidArgument: there is no such column.
    """
    import pyarrow as pa

    schema = schema_of(collection)
    if columns is None:
        return schema
    known = set(schema.names)
    unknown = [name for name in columns if name not in known]
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
        made = value if isinstance(value, pa.Table) else pa.Table.from_batches([value])
    elif kind == "polars":
        made = (value if columns is None else value.select(columns)).to_arrow()
    else:
        made = _from_pandas(pa, value, schema)
    if columns is not None:
        made = made.select(list(columns))
    if schema is None or made.schema.equals(schema, check_metadata=True):
        return made
    return made.cast(schema)


def _from_pandas(pa: Any, value: Any, schema: Any) -> Any:
    try:
        return pa.Table.from_pandas(value, schema=schema)
    except (pa.ArrowException, TypeError) as error:
        raise UnsupportedType(
            f"a pandas.DataFrame of the collection cannot be read as Arrow: {error}; put frames whose columns hold one "
            "type of data each"
        ) from error


def _record_batches(collection: Collection, schema: Any, columns: Sequence[str] | None) -> Iterator[Any]:
    members = collection.iterate()
    for value in members:
        made = as_table(value, schema, columns)
        del value
        for batch in made.to_batches():
            yield batch
            del batch
        del made


def _equal_batches(pieces: Iterator[Any], rows: int) -> Iterator[Any]:
    import pyarrow as pa

    waiting: list[Any] = []
    held = 0
    for piece in pieces:
        at = 0
        while held + piece.num_rows - at >= rows:
            waiting.append(piece.slice(at, rows - held))
            at += rows - held
            done, waiting, held = waiting, [], 0
            yield done[0] if len(done) == 1 else pa.concat_batches(done)
        if at < piece.num_rows:
            waiting.append(piece.slice(at))
            held += piece.num_rows - at
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
