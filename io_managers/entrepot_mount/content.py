"""What a file contains: bytes in one place, or in pieces that lie where the object has them."""

from __future__ import annotations

import io
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer


class Content:
    """The bytes of a file, which never change. Thread-safe. What it refers to stays pinned while it lives.

    Args:
        pieces: views of bytes; the file is one after the other.

    Attributes:
        size: in bytes.
    """

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._pieces = [piece for piece in pieces if piece.nbytes]
        self._ends = list(accumulate(piece.nbytes for piece in self._pieces))
        self.size = self._ends[-1] if self._ends else 0

    def read(self, offset: int, size: int) -> Buffer:
        """At most ``size`` bytes from ``offset`` on; fewer only at the end. Not copied if they lie in one piece."""
        end = min(offset + size, self.size)
        if offset >= end:
            return b""
        index = bisect_right(self._ends, offset)
        parts: list[memoryview] = []
        while offset < end:
            piece = self._pieces[index]
            start = offset - (self._ends[index] - piece.nbytes)
            parts.append(piece[start : start + end - offset])
            offset += parts[-1].nbytes
            index += 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def whole(self) -> memoryview:
        """All bytes, copied if they lie in several pieces."""
        return memoryview(self.read(0, self.size))


def arrow_file(table: Any) -> Content:
    """An Arrow IPC file of a table or a record batch. Its columns are referenced where they are."""
    import pyarrow as pa

    collected = _Collector()
    with pa.ipc.new_file(pa.PythonFile(collected, mode="w"), table.schema) as writer:
        writer.write(table)
    return Content(collected.pieces())


def npy_file(array: Any) -> Content | None:
    """An ``.npy`` file of an array, whose elements are referenced where they are; None: they have to be copied."""
    import numpy as np

    if array.dtype.hasobject or not array.size or not (array.flags.c_contiguous or array.flags.f_contiguous):
        return None
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    elements = array.ravel(order="K").view(np.uint8)
    return Content([memoryview(header.getvalue()), memoryview(elements).toreadonly()])


class _Collector(io.RawIOBase):
    """A file that keeps what is written by reference. PyArrow writes large buffers as ``pyarrow.Buffer``."""

    def __init__(self) -> None:
        self._pieces: list[memoryview] = []
        self._small = bytearray()
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if isinstance(data, bytes):
            self._small += data
        else:
            self._end_small()
            self._pieces.append(memoryview(data).cast("B"))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def pieces(self) -> list[memoryview]:
        """What was written, in order."""
        self._end_small()
        return self._pieces

    def _end_small(self) -> None:
        if self._small:
            self._pieces.append(memoryview(bytes(self._small)))
            self._small.clear()
