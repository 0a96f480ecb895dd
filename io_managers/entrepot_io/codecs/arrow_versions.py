"""Arrow types that need a newer PyArrow than the installed one.

A schema that PyArrow cannot read may be damaged, or may be in order and name a type that came later. The types are
therefore read from the schema's message itself (a FlatBuffers table, as the Arrow format specifies), only after PyArrow
has refused it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
from entrepot.codec import Node
from entrepot.errors import VersionMismatch

from entrepot_io.codecs.validation import too_old

# First PyArrow release with what the attribute stands for.
_FIRST_RELEASE = {
    "run_end_encoded": "12",
    "string_view": "16",
    "binary_view": "16",
    "list_view": "16",
    "large_list_view": "16",
    "bool8": "18",
    "opaque": "18",
    "uuid": "18",
    "decimal32": "19",
    "decimal64": "19",
    "json_": "19",
}
# What has come since the first releases, by its number in the union Type of Schema.fbs.
_LATER_TYPES = {22: "run_end_encoded", 23: "binary_view", 24: "string_view", 25: "list_view", 26: "large_list_view"}
_LAST_KNOWN_TYPE = 26
_DECIMAL = 7
_EXTENSIONS = {"arrow.bool8": "bool8", "arrow.json": "json_", "arrow.opaque": "opaque", "arrow.uuid": "uuid"}
# From this release on, arrays of views can be made from more than one buffer.
_DATA_OF_VIEWS = 19
_CAN_READ_DATA_OF_VIEWS = int(pa.__version__.partition(".")[0]) >= _DATA_OF_VIEWS
_MAX_FIELDS = 100_000


def unreadable_schema(node: Node, message: bytes) -> VersionMismatch | None:
    """The error for a schema that PyArrow has refused because it names a type of a later release; None: it does not."""
    try:
        named = sorted({name for name in _type_names(message) if name})
    except (struct.error, IndexError, ValueError):
        return None
    missing = [name for name in named if not hasattr(pa, name)]
    return _too_old(node, f"the Arrow type {missing[0]}", missing[0]) if missing else None


def unknown_extension(node: Node, name: str) -> VersionMismatch | None:
    """The error for an extension type of Arrow's own that this release lacks; None: it is not one of those."""
    if not name.startswith("arrow."):
        return None
    return _too_old(node, f"the extension type {name}", _EXTENSIONS.get(name, ""))


def check_views(node: Node, data_buffers: int) -> None:
    """Refuse an array of views that this release cannot build.

    Raises:
        VersionMismatch: it has text or bytes of more than 12 bytes, and PyArrow is older than 19.
    """
    if data_buffers > 0 and not _CAN_READ_DATA_OF_VIEWS:
        raise too_old(node, "string_view or binary_view data of more than 12 bytes", pa, f"{_DATA_OF_VIEWS}")


def _too_old(node: Node, what: str, attribute: str) -> VersionMismatch:
    return too_old(node, what, pa, _FIRST_RELEASE.get(attribute, ""))


def _type_names(message: bytes) -> Iterator[str]:
    """Names of the types that came later, as attributes of ``pyarrow``; "" for the others."""
    start = 8 if message[:4] == b"\xff\xff\xff\xff" else 4  # before that: the length of the message
    root = _follow(message, start)
    schema = _offset(message, root, 2)  # Message.header
    pending = _tables(message, schema, 1)  # Schema.fields
    for _ in range(_MAX_FIELDS):
        if not pending:
            return
        if len(pending) > _MAX_FIELDS:
            break
        field = pending.pop()
        pending += _tables(message, field, 5)  # Field.children
        position = _position(message, field, 2)  # Field.type_type
        number = message[position] if position else 0
        if number == _DECIMAL:
            width = _position(message, _offset(message, field, 3), 2)  # Decimal.bitWidth
            yield {32: "decimal32", 64: "decimal64"}.get(_int32(message, width) if width else 128, "")
        elif number > _LAST_KNOWN_TYPE:
            yield f"number {number}"
        else:
            yield _LATER_TYPES.get(number, "")
    raise ValueError("too many fields")


def _int32(message: bytes, position: int) -> int:
    value: int = struct.unpack_from("<i", message, position)[0]
    return value


def _follow(message: bytes, position: int) -> int:
    """The place that the offset at ``position`` refers to; offsets of FlatBuffers are positive."""
    step = _int32(message, position)
    if step <= 0:
        raise ValueError("not an offset")
    return position + step


def _position(message: bytes, table: int, field: int) -> int:
    """Where a field of a table is; 0: it has its default."""
    vtable = table - _int32(message, table)
    if vtable < 0:
        raise ValueError("not a table")
    size, entry = struct.unpack_from("<H", message, vtable)[0], 4 + 2 * field
    if entry >= size:
        return 0
    relative: int = struct.unpack_from("<H", message, vtable + entry)[0]
    return table + relative if relative else 0


def _offset(message: bytes, table: int, field: int) -> int:
    """The table that a field of a table refers to."""
    position = _position(message, table, field)
    if not position:
        raise ValueError("a field is missing")
    return _follow(message, position)


def _tables(message: bytes, table: int, field: int) -> list[int]:
    """The tables in the vector that a field of a table refers to."""
    position = _position(message, table, field)
    if not position:
        return []
    vector = _follow(message, position)
    count = _int32(message, vector)
    if not 0 <= count <= _MAX_FIELDS:
        raise ValueError("not a vector")
    return [_follow(message, vector + 4 + 4 * number) for number in range(count)]
