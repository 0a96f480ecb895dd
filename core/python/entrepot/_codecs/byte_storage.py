"""Byte strings that are stored inline in a node if short, and as a buffer of the object if long."""

from __future__ import annotations

from typing import Any

from entrepot.codec import Decoder, Encoder, Node
from entrepot.errors import CorruptData

# Up to this many bytes, a buffer's overhead exceeds its content.
INLINE_BYTES = 4096


def store_bytes(encoder: Encoder, node: Node, data: Any) -> bytes | None:
    """Store ``data`` inline (returned, for the node's params) or, if it is long, as the node's next buffer (None)."""
    if len(data) <= INLINE_BYTES:
        return encoder.add_inlined(bytes(data))
    node.buffers.append(encoder.add_buffer(data))
    return None


def load_bytes(node: Node, decoder: Decoder, inline: Any) -> Any:
    """Return the bytes stored by :func:`store_bytes`."""
    if isinstance(inline, bytes):
        return inline
    if inline is not None or not node.buffers:
        raise CorruptData(f"a {node.codec} node has neither inline bytes nor a buffer")
    return decoder.buffer(node.buffers[0])
