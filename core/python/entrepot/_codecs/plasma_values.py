"""Python values as the data of a Plasma object: a pickle of protocol 5, with its out-of-band buffers behind it.

| offset | bytes | content |
|---|---|---|
| 0 | 8 | ``MAGIC`` |
| 8 | 4 | number of buffers, *n* |
| 12 | 4 | 0 |
| 16 | 8 | length of the pickle in bytes |
| 24 | 16 *n* | of each buffer: offset from the start of the data, length in bytes |
| 24 + 16 *n* | | the pickle |
| | | the buffers, each at a multiple of 64 |

Integers are little-endian and unsigned; bytes in between are 0. Buffers are read in place, so an array or a table that
was put is not copied by get.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from entrepot.errors import CorruptData, EntrepotError, UnsupportedType

# Pyarrow's removed serialization began with a count of tensors, which never was as large as the first 4 bytes say.
MAGIC = b"\x93EPlasma"
_HEADER = struct.Struct("<8sIIQ")
_RANGE = struct.Struct("<QQ")
_ALIGN = 64

Load = Callable[[memoryview, Sequence[memoryview]], Any]
"""Unpickles a stream with its out-of-band buffers."""


@dataclass(frozen=True, slots=True)
class EncodedValue:
    """A value that is about to be written.

    Attributes:
        head: what precedes the buffers.
        buffers: each with its offset.
        nbytes: length of the whole.
    """

    head: bytes
    buffers: list[tuple[int, memoryview]]
    nbytes: int

    def joined(self) -> bytes:
        """Return the whole as one byte string."""
        if not self.buffers:
            return self.head
        parts: list[bytes | memoryview] = [self.head]
        end = len(self.head)
        for offset, buffer in self.buffers:
            parts += [bytes(offset - end), buffer]
            end = offset + buffer.nbytes
        return b"".join(parts)

    def write(self, target: memoryview, copy: Callable[[memoryview, Any], None]) -> None:
        """Write the whole into ``target``, ``nbytes`` long; ``copy`` copies a range."""
        end = len(self.head)
        copy(target[:end], self.head)
        for offset, buffer in self.buffers:
            target[end:offset] = bytes(offset - end)
            end = offset + buffer.nbytes
            copy(target[offset:end], buffer)


def encode(value: Any) -> EncodedValue:
    """Pickle a value.

    Raises:
        UnsupportedType: it cannot be pickled.
    """
    outside: list[pickle.PickleBuffer] = []
    try:
        stream = pickle.dumps(value, 5, buffer_callback=outside.append)
        buffers = [buffer.raw() for buffer in outside]
    except MemoryError:
        raise
    except Exception as error:  # anything that the __reduce__ of a part may raise; a buffer that is not contiguous
        stream, buffers = _pickle_again(value, error)
    if not buffers:
        head = _HEADER.pack(MAGIC, 0, 0, len(stream)) + stream
        return EncodedValue(head, [], len(head))
    offset = _HEADER.size + _RANGE.size * len(buffers) + len(stream)
    ranges, placed = [], []
    for buffer in buffers:
        offset = (offset + _ALIGN - 1) // _ALIGN * _ALIGN
        ranges.append(_RANGE.pack(offset, buffer.nbytes))
        placed.append((offset, buffer))
        offset += buffer.nbytes
    head = b"".join([_HEADER.pack(MAGIC, len(buffers), 0, len(stream)), *ranges, stream])
    return EncodedValue(head, placed, offset)


def decode(data: Any, load: Load) -> Any:
    """Rebuild a value from the data of a Plasma object, an object with the buffer protocol.

    Raises:
        UnsupportedType: it is not what :func:`encode` describes.
        CorruptData: it begins like that, and is damaged.
        Anything that ``load`` raises.
    """
    view = memoryview(data)
    size = view.nbytes
    magic, count, _, length = _HEADER.unpack_from(view) if size >= _HEADER.size else (b"", 0, 0, 0)
    if magic != MAGIC:
        raise UnsupportedType(
            f"its data, {size} bytes, is not a value that the put of entrepot.plasma wrote. Read raw bytes with "
            "get_buffers. Values that the put of pyarrow 11 or older wrote need pyarrow.deserialize, which later "
            "releases do not have: write them again with entrepot.plasma, or with Arrow's IPC format and get_buffers"
        )
    begin = _HEADER.size
    end = begin + length
    if not count:
        if end > size:
            raise _damaged(size)
        return load(view[begin:end], ())
    begin += _RANGE.size * count
    end += _RANGE.size * count
    if end > size:
        raise _damaged(size)
    buffers = []
    for offset, nbytes in _RANGE.iter_unpack(view[_HEADER.size : begin]):
        if offset + nbytes > size:
            raise _damaged(size)
        buffers.append(view[offset : offset + nbytes])
    return load(view[begin:end], buffers)


def load_any(stream: memoryview, buffers: Sequence[memoryview]) -> Any:
    """Unpickle, whatever classes the pickle names.

    Raises:
        UnsupportedType, VersionMismatch: a class cannot be imported here, or not in the version that was pickled.
        CorruptData: the stream is damaged.
    """
    try:
        return pickle.loads(stream, buffers=buffers)
    except (EntrepotError, MemoryError, Warning):
        raise
    except Exception as error:
        from entrepot._codecs.pickle_errors import rejected_error  # here, because it imports what few processes need

        raise rejected_error(stream, "", error) from error


def _damaged(size: int) -> CorruptData:
    return CorruptData(f"the value in a Plasma object of {size} bytes is longer than the object: it is damaged")


def _pickle_again(value: Any, failure: Exception) -> tuple[bytes, list[memoryview]]:
    """Pickle a value with parts that a plain pickle does not take: Arrow tensors, buffers that are not contiguous."""
    buffers: list[memoryview] = []

    def keep_outside(buffer: pickle.PickleBuffer) -> bool:
        try:
            buffers.append(buffer.raw())
        except BufferError:
            return True  # its bytes go into the stream
        return False

    sink = io.BytesIO()
    pickler = pickle.Pickler(sink, 5, buffer_callback=keep_outside)
    if sys.modules.get("pyarrow") is not None:  # else the value has no tensors
        import pyarrow

        own: dict[type, Any] = {pyarrow.Tensor: _reduce_tensor}
        pickler.dispatch_table = {**copyreg.dispatch_table, **own}
    try:
        pickler.dump(value)
    except MemoryError:
        raise
    except Exception:
        kind = type(value)
        raise UnsupportedType(
            f"a value of type {kind.__module__}.{kind.__qualname__} cannot be put, because pickling it failed "
            f"({type(failure).__name__}: {failure}): define its class and functions at the top level of a module, or "
            "put bytes, arrays, tables or plain Python instead"
        ) from failure
    return sink.getvalue(), buffers


def _reduce_tensor(tensor: Any) -> tuple[Callable[..., Any], tuple[Any, Any]]:
    return _make_tensor, (tensor.to_numpy(), tensor.dim_names)


def _make_tensor(array: Any, dim_names: Any) -> Any:
    import pyarrow

    return pyarrow.Tensor.from_numpy(array, dim_names or None)
