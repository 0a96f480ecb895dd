"""Small JSON records that the policy keeps in the store, beside the values they describe.

They survive the writer's death as values do, and any process can read them. They are never written to a durable tier.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot.errors import CorruptData, InvalidArgument, VersionMismatch
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import Store

FORMAT_VERSION = 1
MARKER = "entrepot_record"
# A record travels in the message that seals it; the rest of the limit is for its name and tree.
MAX_BYTES = raw_objects.SMALL_BYTES - 1024


def record_id(scope: str, session: str, key: str) -> ObjectID:
    """The ID of a record, derivable in any process."""
    return ObjectID.derive(scope, session, key)


def put(store: Store, key: str, fields: dict[str, Any], *, name: str = "") -> ObjectID:
    """Write a record, replacing an existing one.

    Args:
        store: the session it belongs to.
        key: its ID is derived from this.
        fields: a JSON object.
        name: bound to it, to make it listable; empty: none.

    Raises:
        InvalidArgument: it exceeds the size limit of a record.
        StoreFull, StoreUnavailable: it cannot be written.
    """
    data = encode(fields)
    if len(data) > MAX_BYTES:
        raise InvalidArgument(f"the record {key!r} has {len(data)} bytes; the maximum is {MAX_BYTES}")
    oid = record_id(store.scope, store.session_name, key)
    raw_objects.put_record(store, oid, data, name=name)
    return oid


def encode(fields: dict[str, Any]) -> bytes:
    """Serialize a record."""
    text = json.dumps({MARKER: FORMAT_VERSION, **fields}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")


def get(store: Store, key: str, *, session: str | None = None) -> dict[str, Any] | None:
    """Read a record; None: there is none.

    Args:
        store: of the scope.
        key: as it was written.
        session: the session it belongs to; None: the store's own.

    Raises:
        CorruptData: it is not a record.
        VersionMismatch: it was written by a newer version.
        StoreUnavailable: the store cannot be reached.
    """
    oid = record_id(store.scope, store.session_name if session is None else session, key)
    data = raw_objects.get_record(store, oid)
    return None if data is None else decode(data, key)


def decode(data: bytes, key: str) -> dict[str, Any]:
    """Parse a record; raises as :func:`get`."""
    try:
        fields = json.loads(data)
        version = fields.pop(MARKER)
        if not isinstance(fields, dict) or not isinstance(version, int):
            raise TypeError("not a JSON object with a version")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(f"the record {key!r} cannot be read: {error}") from error
    if version > FORMAT_VERSION:
        raise VersionMismatch(
            f"the record {key!r} has format version {version}, but this installation reads up to {FORMAT_VERSION}: "
            "upgrade entrepot here"
        )
    return fields


def remove(store: Store, key: str) -> None:
    """Delete a record, if it exists."""
    raw_objects.discard(store, record_id(store.scope, store.session_name, key))
