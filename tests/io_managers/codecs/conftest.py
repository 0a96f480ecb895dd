"""Round trips of values through the codecs alone: encode, copy the buffers, decode; no store takes part."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from entrepot._codecs_builtin import codec_specs as builtin_specs
from entrepot.codec import CodecRegistry, CopyMode, Decoder, encode_value, unpack_tree
from entrepot_io.codecs import codec_specs

REGISTRY = CodecRegistry([*builtin_specs(), *codec_specs()], entry_points=False)


def bytes_of(buffer: Any) -> bytes:
    """What a store would keep of a buffer."""
    view = memoryview(buffer)
    assert view.c_contiguous
    return view.tobytes()


def address_of(data: bytes | bytearray) -> int:
    """Where an object's bytes lie."""
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

    def get(self, copy: CopyMode = "never", *, allow_pickle: bool = True) -> Any:
        """Decode over read-only bytes, or over private writable ones unless ``copy`` is "never"."""
        self.handed_out = list(self.buffers) if copy == "never" else [bytearray(item) for item in self.buffers]
        decoder = Decoder(
            REGISTRY,
            lambda index: memoryview(self.handed_out[index]),
            len(self.handed_out),
            copy=copy,
            allow_pickle=allow_pickle,
        )
        return decoder.decode(unpack_tree(self.tree))

    def holds(self, address: int, length: int = 1) -> bool:
        """Whether memory lies inside of a buffer that the last ``get`` handed out: nothing was copied."""
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
    """``put(value, allow_pickle=False)``: the value as stored."""

    def encode(value: Any, *, allow_pickle: bool = False) -> Stored:
        tree, buffers, codec = encode_value(value, REGISTRY, allow_pickle=allow_pickle)
        return Stored(tree, [bytes_of(buffer) for buffer in buffers], codec)

    return encode


@pytest.fixture
def round_trip(put: Callable[..., Stored]) -> Callable[..., Any]:
    """``round_trip(value, copy="never", allow_pickle=False)``: what comes back."""

    def run(value: Any, copy: CopyMode = "never", *, allow_pickle: bool = False) -> Any:
        return put(value, allow_pickle=allow_pickle).get(copy, allow_pickle=allow_pickle)

    return run
