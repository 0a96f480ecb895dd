"""Plasma objects: data and metadata under one ID, as ``entrepot.plasma`` and Plasma's own clients write them.

The tree of each is the same, so that a reader need not parse it; see docs/plasma-python.md.
"""

from __future__ import annotations

from typing import Any

from entrepot._codecs import plasma_values
from entrepot._codecs.builtin import load_pickle
from entrepot.codec import Codec, Decoder, Encoder, Node, pack_tree
from entrepot.errors import CorruptData, UnsupportedType

CODEC_NAME = "plasma.Object"
_PARAMS = {"source": "plasma"}
TREE = pack_tree(Node(CODEC_NAME, 1, _PARAMS, [0, 1]))


class PlasmaObject:
    """What ``Store.get`` returns for an object that was written through Plasma's interface; read-only.

    Attributes:
        data, metadata: its two parts, each a ``memoryview`` of shared memory.
    """

    __slots__ = ("_decoder", "data", "metadata")

    def __init__(self, data: memoryview, metadata: memoryview, decoder: Decoder | None = None) -> None:
        self.data = data
        self.metadata = metadata
        self._decoder = decoder

    @property
    def nbytes(self) -> int:
        """Length of data and metadata in bytes."""
        return self.data.nbytes + self.metadata.nbytes

    def value(self) -> Any:
        """Return the Python value that ``entrepot.plasma``'s ``put`` wrote; arrays in it are views of the data.

        Raises:
            UnsupportedType: the data is something else, or unpickling is switched off here.
            CorruptData: it is damaged.
        """
        decoder = self._decoder
        if decoder is None:
            return plasma_values.decode(self.data, plasma_values.load_any)
        return plasma_values.decode(self.data, lambda stream, buffers: load_pickle(stream, buffers, decoder))

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __repr__(self) -> str:
        return f"<Plasma object of {self.data.nbytes} bytes, metadata of {self.metadata.nbytes} bytes>"


class PlasmaObjectCodec(Codec):
    """Codec for Plasma objects: two buffers, data and metadata."""

    name = CODEC_NAME

    def encode(self, value: Any, encoder: Encoder) -> Node:
        if not isinstance(value, PlasmaObject):
            raise UnsupportedType(f"the codec of Plasma objects expects a PlasmaObject, not a {type(value).__name__}")
        buffers = [encoder.add_buffer(value.data), encoder.add_buffer(value.metadata)]
        return Node(self.name, self.version, dict(_PARAMS), buffers)

    def decode(self, node: Node, decoder: Decoder) -> PlasmaObject:
        if len(node.buffers) != 2:
            raise CorruptData(f"a Plasma object has 2 buffers, data and metadata, but this one has {len(node.buffers)}")
        data, metadata = (memoryview(decoder.buffer(index)) for index in node.buffers)
        return PlasmaObject(data, metadata, decoder)
