"""Arrow types, fields and schemas as bytes: Arrow's IPC schema message, verified to round-trip."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from entrepot.codec import Node
from entrepot.errors import UnsupportedType

from entrepot_io.codecs.arrow_versions import unknown_extension, unreadable_schema
from entrepot_io.codecs.validation import damaged


def describe_schema(schema: pa.Schema) -> list[Any]:
    """The schema as [IPC bytes, names of its extension types].

    Raises:
        UnsupportedType: an extension type is not registered in this process, so it could not be restored.
    """
    data = schema.serialize()
    extensions = _extensions(schema)
    try:
        exact = pa.ipc.read_schema(data).equals(schema, check_metadata=True)
    except pa.ArrowException:
        exact = False
    if not exact:
        raise UnsupportedType(
            f"the Arrow schema changes when it is serialized (extension types: {extensions or 'none'}): "
            "register its extension types with pyarrow.register_extension_type, or allow pickling"
        )
    return [data.to_pybytes(), extensions]


def restore_schema(node: Node, described: Any) -> pa.Schema:
    """Restore the schema that :func:`describe_schema` described.

    Raises:
        UnsupportedType: it has an extension type that is not registered in this process.
        VersionMismatch: it has a type that the PyArrow here does not have.
        CorruptData: it is not a schema.
    """
    if not isinstance(described, list) or len(described) != 2 or not isinstance(described[0], bytes):
        raise damaged(node, "it has no schema")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(described[0]))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable_schema(node, described[0]) or damaged(node, f"its schema cannot be read: {error}") from error
    if described[1]:
        missing = sorted({str(name) for name in described[1]} - set(_extensions(schema)))
        if missing:
            mismatch = next(filter(None, (unknown_extension(node, name) for name in missing)), None)
            if mismatch is not None:
                raise mismatch
            raise UnsupportedType(
                f"the object has the Arrow extension types {missing}, which are not registered in this process: "
                "import the package that defines them, or call pyarrow.register_extension_type"
            )
    return schema


def describe_type(type_: pa.DataType) -> list[Any]:
    """A single type, as a schema of one field."""
    return describe_schema(pa.schema([pa.field("", type_)]))


def restore_type(node: Node, described: Any) -> pa.DataType:
    """Restore the type that :func:`describe_type` described."""
    schema = restore_schema(node, described)
    if len(schema) != 1:
        raise damaged(node, f"its schema has {len(schema)} fields, expected one")
    return schema.field(0).type


def _extensions(schema: pa.Schema) -> list[str]:
    names: set[str] = set()
    pending: list[pa.DataType] = list(schema.types)
    while pending:
        type_ = pending.pop()
        if isinstance(type_, pa.BaseExtensionType):
            names.add(type_.extension_name)
            pending.append(type_.storage_type)
        elif pa.types.is_dictionary(type_):
            pending.append(type_.value_type)
        else:
            pending += [type_.field(index).type for index in range(type_.num_fields)]
    return sorted(names)
