"""Round trips through the codecs without a store: encode, copy the buffers, decode."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from entrepot._codecs.builtin import codec_specs as builtin_specs
from entrepot.codec import CodecRegistry, CopyMode, Decoder, ObjectStrings, encode_value, unpack_tree
from entrepot_io.codecs import codec_specs

REGISTRY = CodecRegistry([*builtin_specs(), *codec_specs()], entry_points=False)


def bytes_of(buffer: Any) -> bytes:
    """The bytes that a store would keep of a buffer."""
    view = memoryview(buffer)
    assert view.c_contiguous
    return view.tobytes()


def address_of(data: bytes | bytearray) -> int:
    """Address of an object's bytes."""
    if isinstance(data, bytearray):
        return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))
    return int(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0)


class Stored:
    """A value as a store keeps it: the packed tree and copies of the buffers."""

    def __init__(self, tree: bytes, buffers: Sequence[bytes], codec: str) -> None:
        self.tree = tree
        self.buffers = list(buffers)
        self.codec = codec
        self.handed_out: list[bytes | bytearray] = []

    def get(
        self, copy: CopyMode = "never", *, allow_pickle: bool = True, object_strings: ObjectStrings = "object"
    ) -> Any:
        """Decode from the read-only buffers, or from private writable copies unless ``copy`` is "never"."""
        self.handed_out = list(self.buffers) if copy == "never" else [bytearray(item) for item in self.buffers]
        decoder = Decoder(
            REGISTRY,
            lambda index: memoryview(self.handed_out[index]),
            len(self.handed_out),
            copy=copy,
            allow_pickle=allow_pickle,
            object_strings=object_strings,
        )
        return decoder.decode(unpack_tree(self.tree))

    def holds(self, address: int, length: int = 1) -> bool:
        """Whether this memory lies inside a buffer that the last ``get`` returned, that is, was not copied."""
        return any(
            address_of(data) <= address and address + length <= address_of(data) + len(data)
            for data in self.handed_out
            if data
        )

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.buffers))


@pytest.fixture
def put() -> Callable[..., Stored]:
    """``put(value, allow_pickle=False)``: encode a value; returns it as stored."""

    def encode(value: Any, *, allow_pickle: bool = False) -> Stored:
        tree, buffers, codec = encode_value(value, REGISTRY, allow_pickle=allow_pickle)
        return Stored(tree, [bytes_of(buffer) for buffer in buffers], codec)

    return encode


@pytest.fixture
def round_trip(put: Callable[..., Stored]) -> Callable[..., Any]:
    """``round_trip(value, copy="never", allow_pickle=False)``: encode a value and decode it again."""

    def run(value: Any, copy: CopyMode = "never", *, allow_pickle: bool = False) -> Any:
        return put(value, allow_pickle=allow_pickle).get(copy, allow_pickle=allow_pickle)

    return run
