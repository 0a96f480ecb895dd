"""Small JSON records that the policy keeps in the store, beside the values that they are about.

They survive the writer's death as values do, and are read by any process. Nothing here goes to a durable tier.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from entrepot import parts
from entrepot.errors import CorruptData, InvalidArgument, VersionMismatch
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import Store

FORMAT_VERSION = 1
MARKER = "entrepot_record"
# A record travels in the message that seals it; the rest is for its name and tree.
MOST_BYTES = parts.SMALL_BYTES - 1024


def record_id(scope: str, session: str, key: str) -> ObjectID:
    """The ID of a record, which any process derives."""
    return ObjectID.derive(scope, session, key)


def put(store: Store, key: str, said: dict[str, Any], *, name: str = "") -> ObjectID:
    """Write a record, in place of what was there.

    Args:
        store: the session that it belongs to.
        key: from which its ID is derived.
        said: JSON.
        name: bound to it, so that it can be listed; empty: none.

    Raises:
        InvalidArgument: it is larger than a record may be.
        StoreFull, StoreUnavailable: it cannot be written.
    """
    data = encoded(said)
    if len(data) > MOST_BYTES:
        raise InvalidArgument(f"the record {key!r} has {len(data)} bytes, and may have {MOST_BYTES}")
    oid = record_id(store.scope, store.session_name, key)
    parts.put_record(store, oid, data, name=name)
    return oid


def encoded(said: dict[str, Any]) -> bytes:
    """A record's bytes."""
    text = json.dumps({MARKER: FORMAT_VERSION, **said}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")


def get(store: Store, key: str, *, session: str | None = None) -> dict[str, Any] | None:
    """Read a record; None: there is none.

    Args:
        store: of the scope.
        key: as it was written.
        session: where it belongs; None: to the store's own.

    Raises:
        CorruptData: it is no record.
        VersionMismatch: a newer version wrote it.
        StoreUnavailable: the store cannot be reached.
    """
    oid = record_id(store.scope, store.session_name if session is None else session, key)
    data = parts.get_record(store, oid)
    return None if data is None else decoded(data, key)


def decoded(data: bytes, key: str) -> dict[str, Any]:
    """What a record's bytes say; raises as :func:`get`."""
    try:
        said = json.loads(data)
        version = said.pop(MARKER)
        if not isinstance(said, dict) or not isinstance(version, int):
            raise TypeError("it is no JSON object with a version")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(f"the record {key!r} cannot be read: {error}") from error
    if version > FORMAT_VERSION:
        raise VersionMismatch(
            f"the record {key!r} has format version {version}, this installation reads up to {FORMAT_VERSION}: "
            "upgrade entrepot here"
        )
    return said


def remove(store: Store, key: str) -> None:
    """Delete a record; nothing if there is none."""
    parts.discard(store, record_id(store.scope, store.session_name, key))
