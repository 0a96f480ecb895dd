"""Resolves what is to be saved (an object, several, a collection or a session) into a list of objects."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from entrepot import _core, raw_objects
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID
from entrepot.raw_collections import packed_contents, slice_contents
from entrepot.raw_objects import ObjectEntry

from entrepot_checkpoints.manifests.manifest import CheckpointKind, Chunk, FileFormat, Manifest, SavedObject

if TYPE_CHECKING:
    from entrepot import Collection, Store

COLLECTION_CODEC = "entrepot.collection"
MAX_NAME_BYTES = 255


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
class SyntheticObject:
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
class SaveRequest:
    """A request to save objects.

    Attributes:
        what: its kind.
        store: the session that it is in.
        roots: the IDs that were requested.
        objects: all objects that belong to it, each once.
        strict: whether a missing object is an error; for a session it is simply no longer part of it.
        synthetic: the one of the objects that is not in the store.
    """

    what: CheckpointKind
    store: Store
    roots: list[ObjectID]
    objects: list[ObjectEntry]
    strict: bool
    synthetic: SyntheticObject | None = None


def resolve_save_request(store: Store, what: Any) -> SaveRequest:
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
            raise InvalidArgument(f"{what!r} belongs to another store or scope: save it with its own save()")
        objects = sorted(raw_objects.iter_entries(what), key=lambda item: item.id)
        return SaveRequest("session", what, [item.id for item in objects], objects, False)
    if isinstance(what, Collection) and what.positions != range(what.count_sealed):
        return _slice_request(store, what)
    if isinstance(what, CollectionLike):
        return _collection_request(store, what.id, what.ids)
    if isinstance(what, (ObjectID, str, bytes)):
        oid = ObjectID(what)
        if raw_objects.read(store, oid).type == COLLECTION_CODEC:
            return _collection_request(store, oid, store.get(oid).ids)
        return SaveRequest("object", store, [oid], [raw_objects.entry_of(store, oid)], True)
    if isinstance(what, Iterable):
        roots = [_to_id(item) for item in what]
        members: list[ObjectID] = []
        for oid in roots:
            if raw_objects.read(store, oid).type == COLLECTION_CODEC:
                members.extend(store.get(oid).ids)
        return SaveRequest("objects", store, roots, _look_up_all(store, [*roots, *members]), True)
    raise InvalidArgument(
        f"save accepts an ObjectID, a list of them, a collection, or a Store (its session), "
        f"not {type(what).__name__}: put the value first"
    )


def manifest_of(
    request: SaveRequest, format: FileFormat, own_chunks: bool, chunks: list[Chunk], objects: list[SavedObject]
) -> Manifest:
    """The manifest of a request, once its objects are stored."""
    present = {saved.id for saved in objects}
    return Manifest(
        what=request.what,
        format=format,
        scope=request.store.scope,
        session=request.store.session_name,
        instance=request.store.instance_id,
        host=request.store.host,
        created=time.time(),
        written_by=f"entrepot {_core.VERSION}",
        own_chunks=own_chunks,
        roots=tuple(oid for oid in request.roots if oid in present),
        chunks=tuple(chunks),
        objects=tuple(objects),
    )


def _collection_request(store: Store, oid: ObjectID, members: list[ObjectID]) -> SaveRequest:
    return SaveRequest("collection", store, [oid], _look_up_all(store, [oid, *members]), True)


def _slice_request(store: Store, collection_slice: Collection) -> SaveRequest:
    """Save a slice as a collection of only its members; it is loaded as such."""
    oid, contents = slice_contents(collection_slice)
    tree, buffers = packed_contents(contents)
    synthetic = SyntheticObject(oid, tree, [memoryview(buffer).cast("B") for buffer in buffers])
    names = (contents.name,) if len(contents.name.encode()) <= MAX_NAME_BYTES else ()
    entry = ObjectEntry(oid, synthetic.generation, sum(buffer.nbytes for buffer in synthetic.buffers), names)
    return SaveRequest("collection", store, [oid], [entry, *_look_up_all(store, collection_slice.ids)], True, synthetic)


def _look_up_all(store: Store, ids: list[ObjectID]) -> list[ObjectEntry]:
    return [raw_objects.entry_of(store, oid) for oid in dict.fromkeys(ids)]


def _to_id(value: Any) -> ObjectID:
    if not isinstance(value, (ObjectID, str, bytes)):
        raise InvalidArgument(f"a list to save must contain ObjectIDs, but it has a {type(value).__name__}")
    return ObjectID(value)
