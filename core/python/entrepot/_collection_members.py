"""Members of a collection: listing them in an object, finding their common traits, deleting them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from entrepot._collection_tree import COLLECTION_CODEC, TENSOR, VALUE, Contents, Traits, contents_node, contents_of
from entrepot._reports import listing
from entrepot._tree import is_tree_of
from entrepot._values import codecs
from entrepot.codec import Decoder, Encoder, pack_tree, unpack_tree
from entrepot.errors import InvalidArgument, ObjectLost, ObjectNotFound, UnsupportedType

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._store import Store
    from entrepot.ids import ObjectID

_DELETE_BATCH = 10_000


def put_contents(store: Store, oid: ObjectID, contents: Contents, name: str, replace: bool = False) -> bool:
    """Seal the object that lists the members; return whether an identical one already existed.

    Raises:
        ObjectExists: the ID holds other contents, or the name is bound to another object, and ``replace`` is False.
    """
    item = (oid.binary, store._session_number, replace, False, name, *packed_contents(contents))
    return store._put_item(item)[2]


def packed_contents(contents: Contents) -> tuple[bytes, list[Any]]:
    """Return tree and buffers of the object that lists the members."""
    encoder = Encoder(codecs())
    return pack_tree(contents_node(contents, encoder)), list(encoder.buffers)


def members_of(raw: _core.Client, oid: bytes) -> list[bytes]:
    """Return the IDs of a collection's members; empty if the object is not a collection, is lost, or does not exist."""
    try:
        if not is_tree_of(raw.tree(oid)[0], COLLECTION_CODEC):
            return []
        found = raw.get(oid, 0)
    except (ObjectNotFound, ObjectLost):
        return []
    decoder = Decoder(codecs(), lambda index: found.buffer(index, 0), found.buffer_count)
    contents = contents_of(unpack_tree(found.tree), decoder)
    return [contents.id_of(position).binary for position in range(contents.count)]


def delete_all(raw: _core.Client, ids: list[bytes]) -> None:
    """Delete many objects, in batches; objects already gone are ignored."""
    for at in range(0, len(ids), _DELETE_BATCH):
        raw.delete(ids[at : at + _DELETE_BATCH])


def objects_of(raw: _core.Client, session: int) -> Iterator[bytes]:
    """Yield the IDs of the objects of a session."""
    return (bytes.fromhex(one["id"]) for one in listing(raw, session))


def common_traits(name: str, traits: list[Traits]) -> Traits:
    """Return what all members have in common.

    Raises:
        UnsupportedType: their types differ.
        InvalidArgument: their layouts differ.
    """
    if not traits:
        return Traits("", VALUE)
    first = traits[0]
    for index, one in enumerate(traits):
        if (one.type, one.kind) != (first.type, first.kind):
            raise UnsupportedType(
                f"collection {name!r} holds a {first.type} at index 0 and a {one.type} at index {index}: members are "
                "of one type; put it again with replace=True, or discard() the collection"
            )
        if one.layout != first.layout:
            what = "element type or number of axes" if first.kind == TENSOR else "columns"
            raise InvalidArgument(
                f"collection {name!r} has other {what} at index {index} than at index 0: {one.layout} instead of "
                f"{first.layout}; put it again with replace=True, or discard() the collection"
            )
    counts = [one.rows for one in traits if one.rows is not None]
    rows = sum(counts) if len(counts) == len(traits) else None
    shape = first.row_shape if all(one.row_shape == first.row_shape for one in traits) else None
    return Traits(first.type, first.kind, first.layout, rows, shape, first.schema)
