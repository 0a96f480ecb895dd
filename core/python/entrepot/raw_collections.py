"""Raw collections, for code that moves them: a tree of contents that lists members, and members with arbitrary IDs.

A collection created here is equivalent to one from a builder, except that its members' IDs need not be derived from its
name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Any

from entrepot._codecs.encoding import codec_registry
from entrepot._collections.collection import Collection
from entrepot._collections.members import packed_contents, put_contents
from entrepot._collections.metadata import Contents, MemberMeta, collection_key, member_node, pack_index, parse_contents
from entrepot._collections.positions import pack
from entrepot.codec import Decoder, Encoder, pack_tree, unpack_tree
from entrepot.collection_plugins import collection_plugin
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._store.store import Store

__all__ = ["Contents", "contents_in", "packed_contents", "put_collection", "put_member", "slice_contents"]


def contents_in(tree: bytes, buffers: Sequence[bytes | memoryview]) -> Contents:
    """Parse the contents of a collection object from its tree and buffers.

    Raises:
        CorruptData: it is not a collection, or is inconsistent.
    """
    return parse_contents(unpack_tree(tree), Decoder(codec_registry(), lambda number: buffers[number], len(buffers)))


def slice_contents(part: Collection) -> tuple[ObjectID, Contents]:
    """Return ID and contents for a collection with exactly the members of a slice or selection.

    Its name identifies the original and the members: ``orders[1:3]``.
    """
    contents, positions = part._contents, part.positions  # pyright: ignore[reportPrivateUsage]
    if isinstance(positions, range):
        # A descending range that includes the first member has stop -1, which in a slice would mean the last one.
        stop = "" if positions.step < 0 and positions.stop < 0 else str(positions.stop)
        which = f"{positions.start}:{stop}{'' if positions.step == 1 else f':{positions.step}'}"
    else:
        which = f"{len(positions)} selected, {hashlib.blake2b(bytes(pack(positions)), digest_size=8).hexdigest()}"
    name = f"{contents.name}[{which}]"
    oid = ObjectID.derive(contents.scope, contents.session, collection_key(name))
    traits = changed(contents.traits, rows=part.rows)
    index = pack_index(part.ids, part.sizes, part.row_counts)
    return oid, changed(contents, name=name, count=len(part), nbytes=sum(part.sizes), traits=traits, index=index)


def put_member(store: Store, oid: ObjectID, collection: str, index: int, value: Any, *, replace: bool = False) -> None:
    """Seal a value as a member of a collection.

    Args:
        store: the session that it belongs to.
        oid: its ID.
        collection, index: name of its collection, and position in it.
        value: anything a codec supports.
        replace: whether another value with this ID may be replaced.

    Raises:
        As ``Store.put``.
    """
    traits = collection_plugin().describe(value)
    encoder = Encoder(codec_registry(), allow_pickle=store._allow_pickle)  # pyright: ignore[reportPrivateUsage]
    node = member_node(MemberMeta(collection, index, "", traits), encoder.encode(value))
    tree = pack_tree(node, encoder.inlined)
    item = (oid.binary, store._session_number, replace, False, "", tree, encoder.buffers)  # pyright: ignore[reportPrivateUsage]
    store._put_item(item)  # pyright: ignore[reportPrivateUsage]


def put_collection(
    store: Store,
    oid: ObjectID,
    contents: Contents,
    sizes: Sequence[int],
    *,
    name: str = "",
    replace: bool = False,
) -> None:
    """Seal a collection whose members already exist; their sizes may differ from those in the given contents.

    Args:
        store: the session that it belongs to.
        oid: its ID.
        contents: the original contents.
        sizes: current size in bytes of each member.
        name: bound atomically with the seal; empty: none.
        replace: whether other contents under this ID, and an existing binding of the name, may be replaced.

    Raises:
        ObjectExists: the ID holds other contents, or the name is taken, and ``replace`` is False.
    """
    positions = range(contents.count)
    rows = None if contents.traits.rows is None else [contents.rows_of(position) for position in positions]
    index = pack_index([contents.id_of(position) for position in positions], list(sizes), rows)
    put_contents(store, oid, changed(contents, nbytes=sum(sizes), index=index), name, replace)
