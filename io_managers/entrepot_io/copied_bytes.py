"""How much of a value that was read is a copy: what lies outside of the store's memory, by address.

Nothing is claimed from a value's type or its codec: the addresses of its buffers are compared with the memory of the
store that this process has mapped for reading.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

from entrepot.library_errors import is_library_error

from entrepot_io.type_info import type_name

MAX_PARTS = 1000  # of containers that are looked into
_SEGMENT = "/memfd:entrepot-segment-"
_WRITABLE = "rw-s"  # memory in which values are made: what is there was made by this process, not read
_SCALARS = (bool, int, float, complex, str, bytes, type(None))


class _UnknownMemory(Exception):
    """A part of a value has memory that cannot be located."""


def copied_bytes(value: Any) -> int | None:
    """Return how many bytes of a value are not the store's: 0 for a view.

    Args:
        value: as read: arrays of NumPy, tables of Arrow, pandas and Polars, Python's own values, and containers of
            them.

    Returns:
        None: it has other parts, or very many, or very deep ones, or is read later (a lazy frame, a reader), or its
        library does not say where its memory is (128-bit integers of Polars).
    """
    buffers: dict[int, int] = {}
    try:
        for address, size in _buffers(value, [MAX_PARTS]):
            buffers[address] = max(size, buffers.get(address, 0))  # columns may share one
    except (_UnknownMemory, RecursionError):
        return None
    if not buffers:
        return 0
    ranges = _store_memory()
    begins = [begin for begin, _ in ranges]
    copied = 0
    for address, size in buffers.items():
        index = bisect_right(begins, address) - 1
        if index < 0 or address >= ranges[index][1]:
            copied += size
    return copied


def _store_memory() -> list[tuple[int, int]]:
    """Where this process has the store's memory: begin and end of each mapping, in order."""
    ranges: list[tuple[int, int]] = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            if _SEGMENT in line:
                place, mode = line.split(maxsplit=2)[:2]
                if mode != _WRITABLE:
                    begin, _, end = place.partition("-")
                    ranges.append((int(begin, 16), int(end, 16)))
    return sorted(ranges)


def _buffers(value: Any, left: list[int]) -> Iterator[tuple[int, int]]:
    """Addresses and sizes of a value's buffers; ``left``: how many more parts are looked into."""
    left[0] -= 1
    if left[0] < 0:
        raise _UnknownMemory
    kind = type_name(value)
    if isinstance(value, _SCALARS):
        yield id(value), sys.getsizeof(value)
    elif isinstance(value, (list, tuple, Mapping)):
        parts = value.values() if isinstance(value, Mapping) else value
        for part in parts:
            yield from _buffers(part, left)
    elif isinstance(value, memoryview):
        yield from _of_memory(value)
    elif kind == "numpy.ndarray":
        if value.nbytes:
            yield value.__array_interface__["data"][0], value.nbytes
    elif kind == "pandas.DataFrame":
        for number in range(value.shape[1]):
            yield from _of_column(value.iloc[:, number], left)
    elif kind == "pandas.Series":
        yield from _of_column(value, left)
    elif kind == "polars.DataFrame":
        yield from _buffers(_arrow_of_polars(value), left)
    elif kind in ("pyarrow.Table", "pyarrow.RecordBatch"):
        for column in value.columns:
            yield from _of_arrow(column)
    elif kind == "pyarrow.ChunkedArray" or (kind.startswith("pyarrow.") and hasattr(value, "buffers")):
        yield from _of_arrow(value)
    else:
        raise _UnknownMemory


def _arrow_of_polars(frame: Any) -> Any:
    """The buffers of a frame as Arrow's, without a conversion of strings to Arrow's older layout."""
    import polars as pl

    try:
        return frame.to_arrow(compat_level=pl.CompatLevel.newest())
    except BaseException as error:  # a dtype that Arrow lacks
        if not is_library_error(error):
            raise
        raise _UnknownMemory from error


def _of_memory(view: memoryview) -> Iterator[tuple[int, int]]:
    import numpy as np

    yield from _buffers(np.frombuffer(view, dtype=np.uint8), [1])


def _of_column(column: Any, left: list[int]) -> Iterator[tuple[int, int]]:
    import numpy as np

    if isinstance(column.dtype, np.dtype):
        yield from _buffers(column.to_numpy(copy=False), left)
    elif getattr(column.dtype, "storage", "") == "pyarrow" or type(column.dtype).__name__ == "ArrowDtype":
        import pyarrow as pa

        yield from _of_arrow(pa.array(column.array))
    else:
        raise _UnknownMemory


def _of_arrow(array: Any) -> Iterator[tuple[int, int]]:
    for chunk in getattr(array, "chunks", (array,)):
        for buffer in chunk.buffers():
            if buffer is not None and buffer.size:
                yield buffer.address, buffer.size
        if hasattr(chunk, "dictionary"):
            yield from _of_arrow(chunk.dictionary)
