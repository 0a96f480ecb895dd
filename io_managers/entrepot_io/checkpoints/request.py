"""Resolves what is to be saved (an object, several, a collection or a session) into a list of objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from entrepot import parts
from entrepot.collection_parts import packed_contents, slice_contents
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID
from entrepot.parts import Listed

from entrepot_io.checkpoints.manifest import What

if TYPE_CHECKING:
    from entrepot import Collection, Store

COLLECTION_CODEC = "entrepot.collection"
NAME_MAX_BYTES = 255


@runtime_checkable
class CollectionLike(Protocol):
    """A collection: an object of its own, which names its members."""

    @property
    def id(self) -> ObjectID:
        """Its ID."""
        ...

    @property
    def ids(self) -> list[ObjectID]:
        """The members' IDs, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Made:
    """An object that is saved without being in the store: the member list of a slice.

    Attributes:
        id: its ID.
        tree, buffers: as those of an object in the store.
    """

    id: ObjectID
    tree: bytes
    buffers: list[memoryview]
    generation: int = 0  # never a generation of any store


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be saved.

    Attributes:
        what: its kind.
        store: the session that it is in.
        roots: the IDs that were requested.
        objects: all objects that belong to it, each once.
        strict: whether a missing object is an error; for a session it is simply no longer part of it.
        made: the one of the objects that is not in the store.
    """

    what: What
    store: Store
    roots: list[ObjectID]
    objects: list[Listed]
    strict: bool
    made: Made | None = None


def wanted(store: Store, what: Any) -> Wanted:
    """Resolve the user's argument.

    Args:
        store: where to look it up.
        what: an ObjectID (or its 40 digits or 20 bytes), an iterable of those, a collection or a slice of one, or a
            ``Store``, meaning its session.

    Raises:
        ObjectNotFound: an object is not sealed here.
        InvalidArgument: anything else.
    """
    from entrepot import Collection, Store

    if isinstance(what, Store):
        if what.address != store.address or what.scope != store.scope:
            raise InvalidArgument(f"{what!r} is a session of another store or scope: save it with its own save()")
        objects = sorted(parts.listed(what), key=lambda one: one.id)
        return Wanted("session", what, [one.id for one in objects], objects, False)
    if isinstance(what, Collection) and what.positions != range(what.count_sealed):
        return _slice(store, what)
    if isinstance(what, CollectionLike):
        return _collection(store, what.id, what.ids)
    if isinstance(what, (ObjectID, str, bytes)):
        oid = ObjectID(what)
        if parts.read(store, oid).type == COLLECTION_CODEC:
            return _collection(store, oid, store.get(oid).ids)
        return Wanted("object", store, [oid], [parts.look_up(store, oid)], True)
    if isinstance(what, Iterable):
        roots = [_to_id(one) for one in what]
        members: list[ObjectID] = []
        for oid in roots:
            if parts.read(store, oid).type == COLLECTION_CODEC:
                members.extend(store.get(oid).ids)
        return Wanted("objects", store, roots, _looked_up(store, [*roots, *members]), True)
    raise InvalidArgument(
        f"what is saved is an ObjectID, a list of them, a collection, or a Store (its session), "
        f"not {type(what).__name__}: put a value first"
    )


def _collection(store: Store, oid: ObjectID, members: list[ObjectID]) -> Wanted:
    return Wanted("collection", store, [oid], _looked_up(store, [oid, *members]), True)


def _slice(store: Store, part: Collection) -> Wanted:
    """Save a slice as a collection of only its members; it is loaded as such."""
    oid, contents = slice_contents(part)
    tree, buffers = packed_contents(contents)
    made = Made(oid, tree, [memoryview(buffer).cast("B") for buffer in buffers])
    names = (contents.name,) if len(contents.name.encode()) <= NAME_MAX_BYTES else ()
    listed = Listed(oid, made.generation, sum(buffer.nbytes for buffer in made.buffers), names)
    return Wanted("collection", store, [oid], [listed, *_looked_up(store, part.ids)], True, made)


def _looked_up(store: Store, ids: list[ObjectID]) -> list[Listed]:
    return [parts.look_up(store, oid) for oid in dict.fromkeys(ids)]


def _to_id(value: Any) -> ObjectID:
    if not isinstance(value, (ObjectID, str, bytes)):
        raise InvalidArgument(f"a list that is saved holds ObjectIDs, but it has a {type(value).__name__}")
    return ObjectID(value)
