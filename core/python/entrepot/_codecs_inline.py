"""Byte strings that are kept in a node if they are short, and as a buffer of the object if they are long."""

from __future__ import annotations

from typing import Any

from entrepot.codec import Decoder, Encoder, Node
from entrepot.errors import CorruptData

# Up to this many bytes a buffer costs more than it holds.
INLINE_BYTES = 4096


def store_bytes(encoder: Encoder, node: Node, data: Any) -> bytes | None:
    """Keep ``data`` in the node (returned, for the params) or, if it is long, as the node's next buffer (None)."""
    if len(data) <= INLINE_BYTES:
        return encoder.add_inlined(bytes(data))
    node.buffers.append(encoder.add_buffer(data))
    return None


def stored_bytes(node: Node, decoder: Decoder, inline: Any) -> Any:
    """The bytes that :func:`store_bytes` kept."""
    if isinstance(inline, bytes):
        return inline
    if inline is not None or not node.buffers:
        raise CorruptData(f"a {node.codec} node holds neither its bytes nor a buffer")
    return decoder.buffer(node.buffers[0])
