"""The tree that describes a value, and how it is packed; described in ``docs/formats/metadata.md``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgpack

from entrepot.errors import CorruptData, VersionMismatch

TREE_FORMAT_VERSION = 1
# msgpack and the C stack both bound the nesting; a deeper value is refused instead of overflowing.
MAX_DEPTH = 200


@dataclass(slots=True)
class Node:
    """One level of an object's tree.

    Attributes:
        codec: registry name of the codec that made it, such as ``"numpy.ndarray"``.
        version: version of that codec's own format, at least 1.
        params: what the codec needs to rebuild the value; anything that msgpack can carry
            (None, bool, int within 64 bits, float, str, bytes, list, dict).
        buffers: indexes into the object's buffers, in the codec's own order.
        children: nodes of nested values.
    """

    codec: str
    version: int
    params: Any = None
    buffers: list[int] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)


def pack_tree(root: Node) -> bytes:
    """Write a tree as msgpack: ``[version, node]``, a node being ``[codec, version, params, buffers, children]``."""
    packed: Any = msgpack.packb([TREE_FORMAT_VERSION, _to_list(root)], use_bin_type=True)
    return bytes(packed)


def unpack_tree(data: Any) -> Node:
    """Read what :func:`pack_tree` wrote.

    Raises:
        VersionMismatch: the format version is newer than this code.
        CorruptData: the bytes are not such a tree.
    """
    try:
        top = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except Exception as error:  # msgpack raises several unrelated types for bad input
        raise CorruptData(f"the object's metadata is not readable: {error}") from error
    if not isinstance(top, list) or len(top) != 2 or not isinstance(top[0], int):
        raise CorruptData("the object's metadata is not a tree of nodes")
    if top[0] > TREE_FORMAT_VERSION:
        raise VersionMismatch(
            f"the object's metadata has format {top[0]}, this installation reads up to {TREE_FORMAT_VERSION}: upgrade"
        )
    return _from_list(top[1], 0)


def _to_list(node: Node) -> list[Any]:
    return [node.codec, node.version, node.params, node.buffers, [_to_list(child) for child in node.children]]


def _from_list(raw: Any, depth: int) -> Node:
    if depth > MAX_DEPTH or not isinstance(raw, list) or len(raw) != 5:
        raise CorruptData("the object's metadata has a malformed node")
    codec, version, params, buffers, children = raw
    if not isinstance(codec, str) or not isinstance(version, int) or not isinstance(buffers, list):
        raise CorruptData("the object's metadata has a malformed node")
    if not isinstance(children, list) or not all(isinstance(index, int) for index in buffers):
        raise CorruptData("the object's metadata has a malformed node")
    return Node(codec, version, params, buffers, [_from_list(child, depth + 1) for child in children])
