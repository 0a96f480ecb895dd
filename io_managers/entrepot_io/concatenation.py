"""Tables of one input with the same columns as one table, also where the types of a column differ without a loss.

Writers let types drift: a column of integers has floats on the day on which a value is missing, a column of text has no
type on the day on which all are. As a database's table would, the whole has one type for each column, in the order of
the first table; unlike it, no value changes, and no column is made up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from entrepot.errors import UnsupportedType

if TYPE_CHECKING:
    import pyarrow as pa


def concatenated(tables: Mapping[str, pa.Table], what: str, remedy: str) -> pa.Table:
    """Return several tables as one, whose chunks are theirs: only columns whose type differs are copied.

    Args:
        tables: by the name of their partition, at least one.
        what: they are, for errors, such as ``"the asset sales"``.
        remedy: what to do if they do not go together.

    Raises:
        UnsupportedType: a table has other columns, or a value would change with the type that its column needs.
    """
    import pyarrow as pa

    first_name, first = next(iter(tables.items()))
    if all(table.schema.equals(first.schema) for table in tables.values()):
        return pa.concat_tables(tables.values())
    for partition, table in tables.items():
        _check_columns(first_name, first, partition, table, what, remedy)
    names = first.schema.names
    ordered = {key: table if table.schema.names == names else table.select(names) for key, table in tables.items()}
    fields: list[pa.Field] = []
    for position, field in enumerate(first.schema):
        of_tables = {name: table.schema.field(position) for name, table in ordered.items()}
        fields.append(field if _same(of_tables.values()) else _common(of_tables, what, remedy))
    schema = pa.schema(fields, _metadata(first.schema, fields))
    parts = [
        pa.Table.from_arrays(
            [
                _cast(column, field, f"the partition {name} of {what}", remedy)
                for column, field in zip(table.columns, fields, strict=True)
            ],
            schema=schema,
        )
        for name, table in ordered.items()
    ]
    return pa.concat_tables(parts)


def _check_columns(first_name: str, first: pa.Table, partition: str, table: pa.Table, what: str, remedy: str) -> None:
    """Check that a table has the columns of the first one, in any order."""
    expected, present = first.schema.names, table.schema.names
    if sorted(expected) == sorted(present) and (len(set(present)) == len(present) or expected == present):
        return
    if missing := [name for name in expected if name not in present]:
        problem = f"has no column {missing[0]!r}, which the partition {first_name} has"
    elif added := [name for name in present if name not in expected]:
        problem = f"has a column {added[0]!r}, which the partition {first_name} has not"
    else:
        problem = f"has the columns {', '.join(map(repr, present))}, some of them more than once"
    raise UnsupportedType(f"the partition {partition} of {what} {problem}: {remedy}")


def _same(fields: Iterable[pa.Field]) -> bool:
    first, *others = fields
    return all(field.equals(first) for field in others)


def _common(fields: Mapping[str, pa.Field], what: str, remedy: str) -> pa.Field:
    """A field of the type that has the values of all of these."""
    import pyarrow as pa

    (first_name, first), *others = fields.items()
    common = first
    for partition, field in others:
        try:
            schemas = [pa.schema([each.remove_metadata()]) for each in (common, field)]
            common = pa.unify_schemas(schemas, promote_options="permissive").field(0)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise UnsupportedType(
                f"the column {first.name!r} of {what} is {_type(first)} in the partition {first_name} and "
                f"{_type(field)} in the partition {partition}, which have no common type: {remedy}"
            ) from error
    return common.with_metadata(first.metadata)


def _cast(column: pa.ChunkedArray, field: pa.Field, where: str, remedy: str) -> pa.ChunkedArray:
    import pyarrow as pa

    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)  # which checks that no value changes
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise UnsupportedType(
            f"the column {field.name!r} in {where} is {column.type}, and would be {field.type} with the other "
            f"partitions, which not all of its values fit: {remedy} ({error})"
        ) from error


def _type(field: pa.Field) -> str:
    return str(field.type)


def _metadata(schema: pa.Schema, fields: Iterable[pa.Field]) -> dict[bytes, bytes] | None:
    """The first table's metadata, without pandas' dtypes of the columns that have another type now."""
    metadata: dict[bytes, bytes] = dict(schema.metadata or {})
    changed = {field.name for field, old in zip(fields, schema, strict=True) if not field.type.equals(old.type)}
    if not changed or b"pandas" not in metadata:
        return metadata or None
    about: dict[str, Any] = json.loads(metadata[b"pandas"])
    for column in about["columns"]:
        if column.get("field_name") in changed:
            column.update(numpy_type="object", metadata=None)
    return {**metadata, b"pandas": json.dumps(about).encode()}
