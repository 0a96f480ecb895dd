"""The tree that describes a value, and its packed form; see ``docs/formats/metadata.md``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgpack

from entrepot.errors import CodecFailed, CorruptData, VersionMismatch

TREE_FORMAT_VERSION = 2
_PLAIN_VERSION = 1  # written if the tree holds no bytes of the value itself; older programs can read it too
# msgpack and the C stack both limit nesting; deeper values are refused instead of overflowing.
MAX_DEPTH = 200


@dataclass(slots=True)
class Node:
    """One level of an object's tree.

    Attributes:
        codec: registry name of the codec that made it, such as ``"numpy.ndarray"``.
        version: version of that codec's own format, at least 1.
        params: what the codec needs to rebuild the value; anything that msgpack can represent
            (None, bool, int within 64 bits, float, str, bytes, list, dict).
        buffers: indexes into the object's buffers, in the codec's own order.
        children: nodes of nested values.
    """

    codec: str
    version: int
    params: Any = None
    buffers: list[int] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)


def pack_tree(root: Node, inlined: int = 0) -> bytes:
    """Serialize a tree as msgpack: ``[1, node]`` or ``[2, inlined, node]``, see ``docs/formats/metadata.md``.

    Args:
        root: the value's node.
        inlined: how many of the value's own bytes are stored in nodes instead of buffers (``Encoder.inlined``).

    Raises:
        CodecFailed: a codec put something into a node that msgpack cannot represent.
    """
    sized = inlined and root.codec != _SHORT_BYTES_CODEC
    top = [TREE_FORMAT_VERSION, inlined, _to_list(root)] if sized else [_PLAIN_VERSION, _to_list(root)]
    try:
        packed: Any = msgpack.packb(top, use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise CodecFailed(
            f"the codec {_culprit(root)!r} described a value by something that metadata cannot hold: {error}; nothing "
            "was stored. Params may be None, bool, int within 64 bits, float, str, bytes, list and dict"
        ) from error
    return bytes(packed)


def _culprit(node: Node) -> str:
    """Return the codec of the innermost node that msgpack cannot pack."""
    for child in node.children:
        try:
            msgpack.packb(_to_list(child), use_bin_type=True)
        except Exception:  # what is wrong with it has been caught before
            return _culprit(child)
    return node.codec


def unpack_tree(data: Any) -> Node:
    """Parse what :func:`pack_tree` wrote.

    Raises:
        VersionMismatch: the format version is newer than this code.
        CorruptData: the bytes are not such a tree.
    """
    try:
        top = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except Exception as error:  # msgpack raises several unrelated types for bad input
        raise CorruptData(f"the object's metadata cannot be read: {error}") from error
    if not isinstance(top, list) or not top or not isinstance(top[0], int):
        raise CorruptData("the object's metadata is not a tree of nodes")
    if top[0] > TREE_FORMAT_VERSION:
        raise VersionMismatch(
            f"the object's metadata has format {top[0]}, but this installation reads up to {TREE_FORMAT_VERSION}: "
            "upgrade entrepot here"
        )
    if len(top) != (2 if top[0] == _PLAIN_VERSION else 3):
        raise CorruptData("the object's metadata is not a tree of nodes")
    return _from_list(top[-1], 0)


def inlined_bytes(tree: bytes) -> int:
    """Return how many of the value's own bytes a packed tree holds; the value's size is these plus its buffers.

    Reads only the tree's first bytes. Trees of older programs do not record the number: 0, except for short byte
    strings.
    """
    if tree[:2] == _SIZED:
        _, inlined = _inlined_and_node_at(tree)
        return inlined
    if tree.startswith(_SHORT_BYTES):
        return _unsigned(tree, len(_SHORT_BYTES), _BIN_LENGTHS)[1]
    return 0


def codec_of(tree: bytes) -> str | None:
    """Return the codec of the root of a packed tree, from the tree's first bytes; None: :func:`unpack_tree` is needed.

    Costs a tenth of unpacking the tree of a small value, which matters to lists of many objects.
    """
    if tree[:2] == _SIZED:
        offset = _inlined_and_node_at(tree)[0]
    elif tree[:2] == _PLAIN:
        offset = len(_PLAIN)
    else:
        return None
    length = tree[offset + 1] - _FIXSTR if len(tree) > offset + 1 and tree[offset] == _FIVE else -1
    text = tree[offset + 2 : offset + 2 + length] if 0 < length < 32 else b""
    return text.decode() if len(text) == length and text.isascii() else None


def is_tree_of(tree: bytes, codec: str) -> bool:
    """Return whether the root of a packed tree has this codec; reads only the tree's first bytes."""
    offset = _inlined_and_node_at(tree)[0] if tree[:2] == _SIZED else len(_PLAIN)
    return tree.startswith(_node_prefix(codec), offset)


def _node_prefix(codec: str) -> bytes:
    packed: Any = msgpack.packb(codec)
    return bytes((_FIVE,)) + bytes(packed)


_FIVE, _FIXSTR = 0x95, 0xA0  # msgpack: array of five elements; text of 0 to 31 bytes, whose length is added
_PLAIN, _SIZED = b"\x92\x01", b"\x93\x02"  # msgpack: array of 2 or 3 elements, the first being the format version
# The only kind of value stored in format 1 although its bytes lie in the tree: its length can be read there anyway.
_SHORT_BYTES_CODEC = "python.bytes"
_SHORT_BYTES = _PLAIN + _node_prefix(_SHORT_BYTES_CODEC) + b"\x01"
_BIN_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4}  # msgpack's type byte of a binary string -> size of its length field
_INT_LENGTHS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}  # msgpack's type byte of an unsigned integer over 127 -> its size


def _inlined_and_node_at(tree: bytes) -> tuple[int, int]:
    first = tree[2] if len(tree) > 2 else -1
    offset, inlined = (3, first) if 0 <= first < 128 else _unsigned(tree, 2, _INT_LENGTHS)
    return offset, min(inlined, len(tree))  # a damaged number must not make an object larger than it can be


def _unsigned(tree: bytes, offset: int, lengths: dict[int, int]) -> tuple[int, int]:
    length = lengths.get(tree[offset], 0) if offset < len(tree) else 0
    end = offset + 1 + length
    return end, int.from_bytes(tree[offset + 1 : end], "big")


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
