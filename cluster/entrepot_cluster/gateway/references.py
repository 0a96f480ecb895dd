"""Which objects an object refers to: the members of a collection, and the collections in a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack
from entrepot import inventory
from entrepot._collections.metadata import COLLECTION_CODEC, REFERENCE_CODEC, may_refer
from entrepot._collections.positions import unpack
from entrepot.codec import Node, unpack_tree
from entrepot.errors import CorruptData, EntrepotError, StoreUnavailable
from entrepot.ids import ID_BYTES, ObjectID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from entrepot import Store, _core

_CODECS = (COLLECTION_CODEC.encode(), REFERENCE_CODEC.encode())
_DATA_CODEC = b"python.data"
_INLINE_CHILD = 20  # msgpack extension type of a node within plain data (entrepot._codecs.plain_data)
MAX_DOCUMENT_BYTES = 16 << 20  # longer plain data is not searched


class Referred(NamedTuple):
    """An object that another one refers to.

    Attributes:
        oid: its ID.
        positions: which of its members, packed as in the reference; None: all of it.
    """

    oid: bytes
    positions: Any = None


def references_in(store: Store, oid: ObjectID) -> tuple[Referred, ...]:
    """Return what an object of the store refers to; nothing, if it is gone or cannot be read.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    try:
        tree, buffer_bytes, _ = raw.tree(oid.binary)
        if not may_refer(tree, buffer_bytes):  # nearly all objects
            return ()
        root = unpack_tree(tree)
        if root.codec == COLLECTION_CODEC:
            return tuple(Referred(member.binary) for member in inventory.members(store, oid))
        return tuple(_in_tree(root, lambda index: _buffer(raw, oid, index)))
    except StoreUnavailable:
        raise
    except EntrepotError:
        return ()


def _buffer(raw: _core.Client, oid: ObjectID, index: int) -> bytes:
    pinned = raw.get(oid.binary, 0)
    view = memoryview(pinned.buffer(index, 0))
    return bytes(view) if view.nbytes <= MAX_DOCUMENT_BYTES else b""


def chosen(members: Sequence[Referred], positions: Any) -> Sequence[Referred]:
    """Those of a collection's members that a reference is about."""
    if positions is None:
        return members
    try:
        return [members[position] for position in unpack(positions, len(members), "")]
    except CorruptData:  # it was rebuilt with other members: reading says so
        return ()


def _in_tree(root: Node, buffer: Callable[[int], bytes]) -> Iterator[Referred]:
    left = [root]
    while left:
        node = left.pop()
        left.extend(node.children)
        if node.codec == REFERENCE_CODEC and isinstance(node.params, dict):
            raw: Any = node.params.get("id")
            if isinstance(raw, bytes) and len(raw) == ID_BYTES:
                yield Referred(raw, node.params.get("positions"))
        elif node.codec == _DATA_CODEC.decode():
            left.extend(_in_document(_document(node, buffer)))


def _document(node: Node, buffer: Callable[[int], bytes]) -> bytes:
    """The msgpack document of plain data, which is in the node if it is short."""
    params: Any = node.params
    if isinstance(params, list) and params and isinstance(params[-1], bytes):
        return params[-1]
    return buffer(node.buffers[0]) if node.buffers else b""


def _in_document(document: bytes) -> list[Node]:
    """The nodes within plain data that may refer to something."""
    nodes: list[Node] = []

    def note(code: int, data: bytes) -> None:
        if code == _INLINE_CHILD and any(codec in data for codec in (*_CODECS, _DATA_CODEC)):
            nodes.append(unpack_tree(data))

    if any(codec in document for codec in _CODECS):
        try:
            msgpack.unpackb(
                document,
                raw=True,
                strict_map_key=False,
                ext_hook=note,
                object_pairs_hook=lambda _: None,  # keys need not be hashable then
            )
        except (ValueError, msgpack.UnpackException) as error:
            raise CorruptData(f"plain data cannot be read: {error}") from error
    return nodes
