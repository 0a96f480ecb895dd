"""Short byte strings: the extension encodes and decodes their trees itself, from a template that it is given here."""

from __future__ import annotations

from entrepot import _core
from entrepot._codecs.byte_storage import INLINE_BYTES
from entrepot.codec import Node, pack_tree

# Name and version that entrepot._codecs.builtin.BytesCodec writes.
CODEC, VERSION = "python.bytes", 1
_EMPTY = b"\xc4\x00"  # msgpack: an empty binary string

MAX_BYTES = INLINE_BYTES  # longer ones get a buffer of their own


def _register_template() -> None:
    prefix, _, suffix = pack_tree(Node(CODEC, VERSION, b"")).partition(_EMPTY)
    _core.set_small_bytes(prefix, suffix)


_register_template()

tree_of = _core.small_tree
