"""Members of a collection: listing them in an object, finding their common traits, pinning and deleting them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from entrepot._client.queries import iter_objects
from entrepot._codecs.encoding import codec_registry
from entrepot._collections.metadata import (
    COLLECTION_CODEC,
    TENSOR,
    VALUE,
    Contents,
    ValueTraits,
    contents_node,
    parse_contents,
)
from entrepot._tree import inlined_bytes, is_tree_of
from entrepot.codec import Decoder, Encoder, pack_tree, unpack_tree
from entrepot.errors import CorruptData, InvalidArgument, ObjectLost, ObjectNotFound, UnsupportedType

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._collections.store_access import CollectionStore
    from entrepot.ids import ObjectID

_DELETE_BATCH = 10_000


def put_contents(store: CollectionStore, oid: ObjectID, contents: Contents, name: str, replace: bool = False) -> bool:
    """Seal the object that lists the members; return whether an identical one already existed.

    Raises:
        ObjectExists: the ID holds other contents, or the name is bound to another object, and ``replace`` is False.
    """
    item = (oid.binary, store._session_number, replace, False, name, *packed_contents(contents))
    return store._put_item(item)[2]


def packed_contents(contents: Contents) -> tuple[bytes, list[Any]]:
    """Return tree and buffers of the object that lists the members."""
    encoder = Encoder(codec_registry())
    return pack_tree(contents_node(contents, encoder)), list(encoder.buffers)


def sealed_contents(raw: _core.Client, oid: bytes) -> Contents | None:
    """Return what a collection consists of; None: the object is not a collection, is lost, or does not exist."""
    try:
        if not is_tree_of(raw.tree(oid)[0], COLLECTION_CODEC):
            return None
        pinned_object = raw.get(oid, 0)
    except (ObjectNotFound, ObjectLost):
        return None
    decoder = Decoder(codec_registry(), lambda index: pinned_object.buffer(index, 0), pinned_object.buffer_count)
    return parse_contents(unpack_tree(pinned_object.tree), decoder)


def members_of(raw: _core.Client, oid: bytes) -> list[bytes]:
    """Return the IDs of a collection's members; empty if the object is not a collection, is lost, or does not exist."""
    contents = sealed_contents(raw, oid)
    if contents is None:
        return []
    return [contents.id_of(position).binary for position in range(contents.count)]


def pin_member(raw: _core.Client, contents: Contents, position: int) -> _core.Object:
    """Pin a member of a sealed collection, wherever in the cluster it is.

    Raises:
        ObjectLost: it was deleted or replaced, or its bytes are gone.
    """
    oid = contents.id_of(position)
    try:
        pinned_object = raw.get(oid.binary, 0, remote=True)
    except (ObjectNotFound, ObjectLost) as error:
        error_type = CorruptData if isinstance(error, CorruptData) else ObjectLost
        raise error_type(
            f"member {position} (object {oid}) of collection {contents.name!r} is no longer available: {error}; "
            "rerun the task that puts it, and seal the collection again"
        ) from error
    # Programs before tree format 2 counted only the buffers.
    size = pinned_object.nbytes + inlined_bytes(pinned_object.tree)
    if contents.bytes_of(position) not in (size, pinned_object.nbytes):
        raise ObjectLost(
            f"member {position} (object {oid}) of collection {contents.name!r} was replaced after the collection "
            f"was sealed: it had {contents.bytes_of(position)} bytes and now has {size}"
        )
    return pinned_object


def delete_all(raw: _core.Client, ids: list[bytes]) -> None:
    """Delete many objects, in batches; objects already gone are ignored."""
    for offset in range(0, len(ids), _DELETE_BATCH):
        raw.delete(ids[offset : offset + _DELETE_BATCH])


def object_ids(raw: _core.Client, session: int) -> Iterator[bytes]:
    """Yield the IDs of the objects of a session."""
    return (bytes.fromhex(record["id"]) for record in iter_objects(raw, session))


def common_traits(name: str, traits: list[ValueTraits]) -> ValueTraits:
    """Return what all members have in common.

    Raises:
        UnsupportedType: their types differ.
        InvalidArgument: their layouts differ.
    """
    if not traits:
        return ValueTraits("", VALUE)
    first = traits[0]
    for index, member_traits in enumerate(traits):
        if (member_traits.type, member_traits.kind) != (first.type, first.kind):
            raise UnsupportedType(
                f"collection {name!r} holds a {first.type} at index 0 and a {member_traits.type} at index {index}: "
                "members must have the same type; put this one again with replace=True, or discard() the collection"
            )
        if member_traits.layout != first.layout:
            aspect = "element type or number of axes" if first.kind == TENSOR else "columns"
            raise InvalidArgument(
                f"collection {name!r} has different {aspect} at index {index} than at index 0: {member_traits.layout} "
                f"instead of {first.layout}; put this one again with replace=True, or discard() the collection"
            )
    counts = [member_traits.rows for member_traits in traits if member_traits.rows is not None]
    rows = sum(counts) if len(counts) == len(traits) else None
    shape = first.row_shape if all(member_traits.row_shape == first.row_shape for member_traits in traits) else None
    return ValueTraits(first.type, first.kind, first.layout, rows, shape, first.schema)
