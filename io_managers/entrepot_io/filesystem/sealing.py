"""Binding names to new content: atomic for readers, and what the name stood for before does not stay behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.codec import Node, pack_tree
from entrepot.errors import InvalidArgument, ObjectNotFound
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import PutResult, Store
    from entrepot.raw_objects import RawObject, RawObjectWriter

_KEY = "entrepot.file:"  # IDs of files are derived from this and their name
BYTES_TREE = pack_tree(Node("python.bytes", 1, None, [0]))

Put = Callable[[ObjectID], "PutResult"]


def resolved(store: Store, name: str) -> ObjectID | None:
    """The ID that a name is bound to; None: it is free."""
    try:
        return store.resolve(name)
    except ObjectNotFound:
        return None


def bind(store: Store, name: str, put: Put, *, exclusive: bool = False) -> PutResult:
    """Put an object under a name. The object that the name stood for is deleted, unless it has other names.

    Args:
        store: the session.
        name: the name.
        put: called with the object's ID; puts the object and binds the name in one step, and replaces what is there
            unless ``exclusive``.
        exclusive: the name has to be free.

    Raises:
        ObjectExists: ``exclusive``, and the name is taken.
        Anything that ``put`` raises; nothing has changed then.
    """
    if exclusive:
        return put(ObjectID.random())  # under a new ID, identical content cannot be taken for the same object
    previous = resolved(store, name)
    result = put(_id_for(store, name))
    if previous is not None and previous != result.id:
        delete_unnamed(store, previous)
    return result


def delete_unnamed(store: Store, oid: ObjectID) -> None:
    """Delete an object that has no name left."""
    try:
        if not store.info(oid).names:
            store.delete(oid)
    except ObjectNotFound:
        pass


def _id_for(store: Store, name: str) -> ObjectID:
    """The same ID each time, so that writers of one name replace each other's content and leave nothing behind; a
    random one if that object has got another name, under which it must stay."""
    oid = store.derive(_KEY + name)
    if not store.exists(oid):
        return oid
    try:
        names = store.info(oid).names
    except ObjectNotFound:
        return oid
    return oid if all(bound == name for bound in names) else ObjectID.random()


def put_value(store: Store, name: str, value: object, *, exclusive: bool = False) -> PutResult:
    """Bind a name to a value. Errors: as :func:`bind`."""
    return bind(
        store,
        name,
        lambda oid: store.put_versioned(value, id=oid, name=name, replace=not exclusive),
        exclusive=exclusive,
    )


def put_filled(store: Store, name: str, filled: RawObjectWriter, *, exclusive: bool = False) -> PutResult:
    """Bind a name to bytes that were written in place. Errors: as :func:`bind`."""
    return bind(
        store, name, lambda oid: filled.seal(oid, BYTES_TREE, name=name, replace=not exclusive), exclusive=exclusive
    )


def put_copy(store: Store, name: str, raw: RawObject) -> PutResult:
    """Bind a name to a copy of an object that shares its large buffers. Errors: as :func:`bind`."""
    lengths = [buffer.nbytes for buffer in raw.buffers]
    if sum(lengths) <= raw_objects.SMALL_BYTES:
        return bind(store, name, lambda oid: _put_small_copy(store, name, raw, oid))
    shared = {i: buffer for i, buffer in enumerate(raw.buffers) if buffer.nbytes >= raw_objects.SHARED_FROM_BYTES}
    with raw_objects.RawObjectWriter(store, lengths, shared) as writer:
        for index, buffer in enumerate(raw.buffers):
            if index not in shared:
                writer.buffers[index][:] = buffer.cast("B")
        return bind(store, name, lambda oid: writer.seal(oid, raw.tree, name=name, replace=True))


def _put_small_copy(store: Store, name: str, raw: RawObject, oid: ObjectID) -> PutResult:
    small = raw_objects.SmallObject(oid, raw.tree, raw.buffers, name)
    return raw_objects.put_small(store, [small], replace=True)[0]


def rename(store: Store, old: str, new: str, oid: ObjectID) -> None:
    """Bind an object to another name of the session instead. Readers find it under one of them at any time.

    Raises:
        ObjectNotFound: it is gone.
        InvalidArgument: a malformed name.
    """
    if old == new:
        raise InvalidArgument(f"{old!r} cannot be renamed to itself")
    previous = resolved(store, new)
    store.set_name(new, oid, replace=True)
    store.unset_name(old)
    if previous is not None and previous != oid:
        delete_unnamed(store, previous)
