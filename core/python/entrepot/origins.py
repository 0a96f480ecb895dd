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
    return raw_objects.SmallObject(_record_id(store, oid), inline_bytes.tree_of(data), ())


def origin_of(store: Store, oid: ObjectID) -> Origin | None:
    """Return the origin of an object in a store's session; None: it is no copy, or not here. Asks nobody.

    Raises:
        CorruptData: the record's ID holds something else.
    """
    data = store._raw().get_small(_record_id(store, oid).binary)  # pyright: ignore[reportPrivateUsage]
    if data is None:
        return None
    try:
        generation, lives = msgpack.unpackb(data)
        return Origin(int(generation), tuple(Life(str(instance), int(number)) for instance, number in lives))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptData(f"the record of where the copy of object {oid} comes from cannot be read: {error}") from error


def copy_of(store: Store, oid: ObjectID, life: Life) -> ObjectID | None:
    """Return the ID under which this store's session has a copy of a life of an object; None: it has none."""
    for candidate in (oid, alias(store, oid, life)):
        origin = origin_of(store, candidate)
        if (
            origin is not None
            and life in origin.lives
            and raw_objects.generation_of(store, candidate) == origin.generation
        ):
            return candidate
    return None


def alias(store: Store, oid: ObjectID, life: Life) -> ObjectID:
    """Return the ID for a copy of a life of an object whose own ID holds another one in the store."""
    return ObjectID.derive(store.scope, store.session_name, f"{_ALIAS_KEY}{life.instance}:{life.generation}:{oid}")


def _record_id(store: Store, oid: ObjectID) -> ObjectID:
    return ObjectID.derive(store.scope, store.session_name, f"{_KEY}{oid}")
