"""Several buffers, addressed as one sequence of bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


class BufferRanges:
    """Views of ranges of several buffers, taken as one sequence of bytes.

    Args:
        buffers: in their order.
    """

    def __init__(self, buffers: Sequence[memoryview]) -> None:
        self._buffers = buffers
        self._starts = [0, *accumulate(buffer.nbytes for buffer in buffers)]

    def views(self, offset: int, length: int) -> list[memoryview]:
        """The parts of the buffers that hold these bytes, which must exist."""
        index = bisect_right(self._starts, offset) - 1
        views = []
        while length:
            begin = offset - self._starts[index]
            part = self._buffers[index][begin : begin + length]
            if part.nbytes:
                views.append(part)
            offset += part.nbytes
            length -= part.nbytes
            index += 1
        return views


def copy_into(views: Sequence[memoryview], data: memoryview) -> None:
    """Copy bytes into consecutive views, which together have the same length."""
    offset = 0
    for view in views:
        view[:] = data[offset : offset + view.nbytes]
        offset += view.nbytes
