"""Origins: of which lives of an object, in other stores, the copy in this store is one.

A life is an instance of a store and the object's generation there. References name one (``entrepot_io.reference``). A
gateway that fetches an object seals it under its ID in a session of the same name, where it gets a generation of this
store, and records beside it which lives it is a copy of. The record is valid for one generation here, so that it says
nothing about an object that replaces the copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgpack

from entrepot import raw_objects
from entrepot._client.gateway_calls import Life as Life
from entrepot._codecs import inline_bytes
from entrepot.errors import CorruptData, InvalidArgument
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._store.store import Store

_KEY = "entrepot.origin:"
_ALIAS_KEY = "entrepot.life:"
_MAX_LIVES = 16
_REMEMBERED_IDS = 4096  # of records: reading a copy needs the same one several times
INTENDED = 0  # in place of a generation: a copy is about to be sealed
INTENDED_ALIAS = (1 << 64) - 1  # the same, under an ID that nothing but this copy can have
_RECORD_BEGINS = b"\x95"  # msgpack: a list of five
_COPY_FIELD = 4  # of a record: the ID of the copy


class Role(IntEnum):
    """Why a store has a copy."""

    READ = 0  # a reader fetched it
    REPLICA = 1  # its session asks for so many copies; it is deleted with the original
    PRIMARY = 2  # it has taken the original's place: moved here, or the original's store was lost


@dataclass(frozen=True, slots=True)
class Origin:
    """What is recorded beside a copy.

    Attributes:
        generation: of the copy, in this store; INTENDED or INTENDED_ALIAS before it is sealed.
        lives: what it is a copy of; the first is the one that it was fetched from, or a copy of that.
        role: why it is here.
        replicas: how many stores are to have the object, because the original's session asks for that.
    """

    generation: int
    lives: tuple[Life, ...]
    role: Role = Role.READ
    replicas: int = 1


def record_of(store: Store, oid: ObjectID, origin: Origin) -> raw_objects.SmallObject:
    """Return the record for a copy in a store's session, to be put with ``replace=True``."""
    lives = origin.lives[:_MAX_LIVES]  # tuples, which are packed as lists
    data = cast("bytes", msgpack.packb([origin.generation, lives, int(origin.role), origin.replicas, oid.binary]))
    return raw_objects.SmallObject(record_id(store.scope, store.session_name, oid), inline_bytes.tree_of(data), ())


def intention_of(store: Store, oid: ObjectID, origin: Origin) -> raw_objects.SmallObject:
    """Return the record to be put before a copy is sealed; ``origin.generation``: INTENDED or INTENDED_ALIAS."""
    return record_of(store, oid, origin)._replace(replace=True)


def recorded_copy(store: Store, candidate: ObjectID, place: tuple[str, str]) -> tuple[ObjectID, Origin] | None:
    """Return the copy that an object is the record of, and what it says; None: the object is no such record.

    Args:
        store: the store.
        candidate: an object of it.
        place: scope and session that it belongs to.
    """
    data = store._raw().get_small(candidate.binary)  # pyright: ignore[reportPrivateUsage]
    if data is None or data[:1] != _RECORD_BEGINS:
        return None
    try:
        oid = ObjectID(msgpack.unpackb(data)[_COPY_FIELD])
        origin = _parse(data)
    except (ValueError, TypeError, IndexError, InvalidArgument, msgpack.UnpackException):
        return None
    return (oid, origin) if record_id(*place, oid) == candidate else None


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
    data = store._raw().get_small(record_id(scope, session, oid).binary)  # pyright: ignore[reportPrivateUsage]
    if data is None:
        return None
    try:
        return _parse(data)
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
    if _is_copy(store, oid, life, place):
        return oid
    other = alias(oid, life, place)
    return other if _is_copy(store, other, life, place) else None


def _is_copy(store: Store, candidate: ObjectID, life: Life, place: tuple[str, str]) -> bool:
    origin = origin_of(store, candidate, place)
    return (
        origin is not None and life in origin.lives and raw_objects.generation_of(store, candidate) == origin.generation
    )


def alias(oid: ObjectID, life: Life, place: tuple[str, str]) -> ObjectID:
    """Return the ID for a copy of a life of an object whose own ID holds another one, in a session of a scope."""
    return ObjectID.derive(*place, f"{_ALIAS_KEY}{life.instance}:{life.generation}:{oid}")


@lru_cache(_REMEMBERED_IDS)
def record_id(scope: str, session: str, oid: ObjectID) -> ObjectID:
    """Return the ID of the record beside a copy in a session of a scope."""
    return ObjectID.derive(scope, session, f"{_KEY}{oid}")


def _parse(data: bytes) -> Origin:
    fields: list[Any] = msgpack.unpackb(data)
    generation, lives, *rest = fields
    role, replicas = rest[:2] if rest else (Role.READ, 1)  # a record of the first format has neither
    origins = tuple(Life(str(instance), int(number)) for instance, number in lives)
    return Origin(int(generation), origins, Role(role), int(replicas))
