"""One row of the table of what a put shares: an operation on a stored value, and the bytes that its result adds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

ROWS = 200_000
COLUMN = 8 * ROWS  # bytes of a column of 64-bit values; above 1 MiB, so that the rule for slices applies to it
Range = tuple[int, int]  # first address and the one after the last


@dataclass(frozen=True)
class Case:
    """Operations on a stored value that add the same number of bytes.

    Attributes:
        parent: name of the stored value in the library's ``PARENTS``, and in the expressions.
        expressions: the operations, as Python code that the documentation shows and the test evaluates.
        new: bytes of each result that are not in the parent and have to be stored.
        note: which bytes these are, if that is not obvious.
    """

    parent: str
    expressions: tuple[str, ...]
    new: int = 0
    note: str = ""


def ranges_of(value: Any) -> list[Range]:
    """The memory of all buffers of a value, without empty ones."""
    return [(first, end) for first, end in _ranges(value) if end > first]


def _ranges(value: Any) -> Iterator[Range]:
    if isinstance(value, np.ma.MaskedArray):
        yield from _ranges(np.ma.getdata(value))
        yield from _ranges(np.ma.getmaskarray(value))
    elif isinstance(value, np.ndarray):
        yield np.lib.array_utils.byte_bounds(value)
    elif isinstance(value, memoryview):
        yield from _ranges(np.frombuffer(value, np.uint8))
    elif isinstance(value, (pa.Table, pa.RecordBatch)):
        for column in value.columns:
            yield from _ranges(column)
    elif isinstance(value, pa.ChunkedArray):
        for chunk in value.chunks:
            yield from _ranges(chunk)
    elif isinstance(value, pa.Array):
        yield from _arrow_ranges(value)
    elif isinstance(value, pa.Buffer):
        yield value.address, value.address + value.size
    elif isinstance(value, pl.Series):
        yield from _ranges(value.to_frame())
    elif isinstance(value, pl.DataFrame):
        yield from _ranges(value.to_arrow(compat_level=pl.CompatLevel.newest()))
    elif isinstance(value, (pd.DataFrame, pd.Series, pd.Index)):
        yield from _pandas_ranges(value)
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _ranges(item)
    else:
        raise TypeError(f"no memory known of a {type(value).__name__}")


def _arrow_ranges(array: pa.Array) -> Iterator[Range]:
    for buffer in array.buffers():
        if buffer is not None:
            yield buffer.address, buffer.address + buffer.size
    if isinstance(array, pa.DictionaryArray):  # buffers() has only those of the indices
        yield from _arrow_ranges(array.dictionary)


def _pandas_ranges(value: Any) -> Iterator[Range]:
    if isinstance(value, pd.DataFrame):
        for position in range(value.shape[1]):
            yield from _pandas_ranges(value.iloc[:, position])
        yield from _pandas_ranges(value.index)
        return
    if isinstance(value, pd.RangeIndex):
        return
    if isinstance(value, pd.Series):
        yield from _pandas_ranges(value.index)
    values = value.array
    if isinstance(values, pd.Categorical):
        yield from _ranges(values.codes)
        yield from _pandas_ranges(values.categories)
    elif isinstance(values, (pd.arrays.ArrowExtensionArray, pd.arrays.ArrowStringArray)):
        yield from _ranges(values.__arrow_array__())
    elif isinstance(values, (pd.arrays.IntegerArray, pd.arrays.FloatingArray, pd.arrays.BooleanArray)):
        parts: Any = values  # pandas has no public accessor for its parts
        yield from _ranges(parts._data)
        yield from _ranges(parts._mask)
    else:
        yield from _ranges(value.to_numpy(copy=False))


def union(ranges: list[Range]) -> list[Range]:
    """The same addresses as disjoint ranges in order."""
    merged: list[Range] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def bytes_outside(ranges: list[Range], parents: list[Range]) -> int:
    """How many of the addresses in ``ranges`` are in none of the parents' ranges."""
    covered = union(parents)
    outside = 0
    for first, end in union(ranges):
        outside += end - first
        for parent_first, parent_end in covered:
            outside -= max(0, min(end, parent_end) - max(first, parent_first))
    return outside
