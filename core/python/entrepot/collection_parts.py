"""Collections as what they consist of, for whatever moves them: contents that list members, and members of any ID.

A collection that is made here is as good as one from a builder; only that its members' IDs need not derive from its
name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Any

from entrepot._collection import Collection
from entrepot._collection_members import packed_contents, put_contents
from entrepot._collection_tree import Card, Contents, collection_key, contents_of, member_node, pack_index
from entrepot._values import codecs
from entrepot.codec import Decoder, Encoder, pack_tree, unpack_tree
from entrepot.ids import ObjectID
from entrepot.views import views

if TYPE_CHECKING:
    from entrepot._store import Store

__all__ = ["Contents", "contents_in", "packed_contents", "put_collection", "put_member", "slice_contents"]


def contents_in(tree: bytes, buffers: Sequence[bytes | memoryview]) -> Contents:
    """What the object of a collection says, given its tree and its buffers.

    Raises:
        CorruptData: it is not one, or does not fit together.
    """
    return contents_of(unpack_tree(tree), Decoder(codecs(), lambda number: buffers[number], len(buffers)))


def slice_contents(part: Collection) -> tuple[ObjectID, Contents]:
    """The ID and the contents of a collection that has a slice's members and no others.

    Its name says which members of which collection those are: ``orders[1:3]``.
    """
    whole, kept = part._contents, part.positions  # pyright: ignore[reportPrivateUsage]
    # A range that runs down to the first member stops at -1, which as a slice would mean the last one.
    stop = "" if kept.step < 0 and kept.stop < 0 else str(kept.stop)
    name = f"{whole.name}[{kept.start}:{stop}{'' if kept.step == 1 else f':{kept.step}'}]"
    oid = ObjectID.derive(whole.scope, whole.session, collection_key(name))
    traits = changed(whole.traits, rows=part.rows)
    index = pack_index(part.ids, part.sizes, part.row_counts)
    return oid, changed(whole, name=name, count=len(part), nbytes=sum(part.sizes), traits=traits, index=index)


def put_member(store: Store, oid: ObjectID, collection: str, index: int, value: Any, *, replace: bool = False) -> None:
    """Seal a value as a member.

    Args:
        store: the session that it belongs to.
        oid: its ID.
        collection, index: its place.
        value: anything a codec takes.
        replace: whether another value of this ID gives way.

    Raises:
        As ``Store.put``.
    """
    traits = views().describe(value)
    encoder = Encoder(codecs(), allow_pickle=store._allow_pickle)  # pyright: ignore[reportPrivateUsage]
    node = member_node(Card(collection, index, "", traits), encoder.encode(value))
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
    """Seal a collection of members that are there, whose bytes may be others than those that the contents name.

    Args:
        store: the session that it belongs to.
        oid: its ID.
        contents: what it was.
        sizes: bytes of each member as it is now.
        name: bound in the same step; empty: none.
        replace: whether other contents of this ID, and the name, give way.

    Raises:
        ObjectExists: the ID holds other contents, or the name is taken, and ``replace`` is False.
    """
    everywhere = range(contents.count)
    rows = None if contents.traits.rows is None else [contents.rows_of(position) for position in everywhere]
    index = pack_index([contents.id_of(position) for position in everywhere], list(sizes), rows)
    put_contents(store, oid, changed(contents, nbytes=sum(sizes), index=index), name, replace)
