"""Origins: of which lives of an object, in other stores, the copy in this store is one.

A life is an instance of a store and the object's generation there. References name one (``entrepot_io.reference``). A
gateway that fetches an object seals it under its ID in a session of the same name, where it gets a generation of this
store, and records beside it which lives it is a copy of. The record is valid for one generation here, so that it says
nothing about an object that replaces the copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import msgpack

from entrepot import raw_objects
from entrepot._client.gateway_calls import Life as Life
from entrepot._codecs import inline_bytes
from entrepot.errors import CorruptData
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._store.store import Store

_KEY = "entrepot.origin:"
_ALIAS_KEY = "entrepot.life:"
_MAX_LIVES = 16


@dataclass(frozen=True, slots=True)
class Origin:
    """What is recorded beside a copy.

    Attributes:
        generation: of the copy, in this store.
        lives: what it is a copy of; the first is the one that it was fetched from, or a copy of that.
    """

    generation: int
    lives: tuple[Life, ...]


def record_of(store: Store, oid: ObjectID, origin: Origin) -> raw_objects.SmallObject:
    """Return the record for a copy in a store's session, to be put with ``replace=True``."""
    data = cast("bytes", msgpack.packb([origin.generation, [list(life) for life in origin.lives[:_MAX_LIVES]]]))
    record_id = _record_id(store.scope, store.session_name, oid)
    return raw_objects.SmallObject(record_id, inline_bytes.tree_of(data), ())


def origin_of(store: Store, oid: ObjectID, place: tuple[str, str] | None = None) -> Origin | None:
    """Return the origin of an object; None: it is no copy, or not here. Asks nobody.

    Args:
        store: the store.
        oid: the object.
        place: scope and session that it belongs to. Default: the store's own session.

    Raises:
        CorruptData: the record's ID holds something else.
    """
    scope, session = place or (store.scope, store.session_name)
    data = store._raw().get_small(_record_id(scope, session, oid).binary)  # pyright: ignore[reportPrivateUsage]
    if data is None:
        return None
    try:
        generation, lives = msgpack.unpackb(data)
        return Origin(int(generation), tuple(Life(str(instance), int(number)) for instance, number in lives))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptData(f"the record of where the copy of object {oid} comes from cannot be read: {error}") from error


def copy_of(store: Store, oid: ObjectID, life: Life, place: tuple[str, str] | None = None) -> ObjectID | None:
    """Return the ID under which a session has a copy of a life of an object; None: it has none.

    Args:
        store: the store.
        oid: the object.
        life: which life of it.
        place: scope and session. Default: the store's own session.
    """
    place = place or (store.scope, store.session_name)
    for candidate in (oid, alias(oid, life, place)):
        origin = origin_of(store, candidate, place)
        if (
            origin is not None
            and life in origin.lives
            and raw_objects.generation_of(store, candidate) == origin.generation
        ):
            return candidate
    return None


def alias(oid: ObjectID, life: Life, place: tuple[str, str]) -> ObjectID:
    """Return the ID for a copy of a life of an object whose own ID holds another one, in a session of a scope."""
    return ObjectID.derive(*place, f"{_ALIAS_KEY}{life.instance}:{life.generation}:{oid}")


def _record_id(scope: str, session: str, oid: ObjectID) -> ObjectID:
    return ObjectID.derive(scope, session, f"{_KEY}{oid}")
