"""Sorting over all ranks, by splitters that are found by sampling."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
from entrepot.errors import InvalidArgument

from entrepot_frames.operators.exchange import broadcast_all, joined, same_columns, send_parts

if TYPE_CHECKING:
    from entrepot_frames.communicators.communicator import Communicator

SAMPLES_PER_RANK = 512


def sort(
    communicator: Communicator,
    frame: pl.DataFrame,
    by: Sequence[str],
    descending: Sequence[bool],
    nulls_last: bool,
) -> pl.DataFrame:
    """Sort the rows of all ranks: those of rank 0 come before those of rank 1, and so on.

    Each rank sorts its rows, and sends a regular sample of them; the sample's quantiles divide the rows (Li et al.,
    "On the versatility of parallel sorting by regular sampling", 1993). Rows of a key that spans several ranks are
    divided evenly between them, so that no rank gets more than its share.

    Args:
        communicator: of the ranks.
        frame: this rank's rows.
        by: key columns.
        descending: for each of them.
        nulls_last: whether nulls come after all values; else before them. NaN is the largest value.

    Raises:
        InvalidArgument: a missing column.
    """
    for column in by:
        if column not in frame.columns:
            raise InvalidArgument(f"sort_values: there is no column {column!r}, only {frame.columns}")
    frame = same_columns(communicator, frame, "sort_values")
    ordered = _sorted(frame, by, descending, nulls_last)
    if communicator.size == 1:
        return ordered
    splitters = _splitters(communicator, ordered.select(by), by, descending, nulls_last)
    if splitters.is_empty():
        return ordered
    bounds = _bounds(ordered.select(by), splitters, descending, nulls_last)
    parts = [ordered.slice(begin, end - begin) for begin, end in pairwise(bounds)]
    received = send_parts(communicator, parts)
    return _sorted(joined(received), by, descending, nulls_last)


def _sorted(frame: pl.DataFrame, by: Sequence[str], descending: Sequence[bool], nulls_last: bool) -> pl.DataFrame:
    return frame.sort(by, descending=list(descending), nulls_last=nulls_last, maintain_order=True)


def _splitters(
    communicator: Communicator, keys: pl.DataFrame, by: Sequence[str], descending: Sequence[bool], nulls_last: bool
) -> pl.DataFrame:
    """``size - 1`` keys that divide all rows evenly; none if there are no rows.

    A rank with more rows than others sends more samples.
    """
    rows = [int(count) for count in communicator.all_gather(keys.height)]
    total = sum(rows)
    if total == 0:
        return keys.clear()
    count = -(-SAMPLES_PER_RANK * communicator.size * keys.height // total)
    step = max(1, keys.height // max(1, count))
    samples = broadcast_all(communicator, keys.gather_every(step, step // 2) if keys.height else keys)
    samples = _sorted(samples, by, descending, nulls_last)
    size = communicator.size
    return samples[[samples.height * index // size for index in range(1, size)]]


def _bounds(keys: pl.DataFrame, splitters: pl.DataFrame, descending: Sequence[bool], nulls_last: bool) -> list[int]:
    """Where the parts of sorted rows begin, and the end: rows before splitter ``i`` belong to ranks up to ``i``."""
    ranges = [
        tuple(_search(keys, splitter, descending, nulls_last, after=after) for after in (False, True))
        for splitter in splitters.iter_rows()
    ]
    bounds = [0]
    for index, (lower, upper) in enumerate(ranges):
        # Rows equal to a splitter go to the ranks on both sides of it, and of all splitters that are equal to it.
        equal = ranges.count((lower, upper)) if lower < upper else 1
        position = index - ranges.index((lower, upper)) + 1
        bounds.append(lower + (upper - lower) * position // (equal + 1) if lower < upper else lower)
    return [*bounds, keys.height]


def _search(
    keys: pl.DataFrame, wanted: tuple[object, ...], descending: Sequence[bool], nulls_last: bool, *, after: bool
) -> int:
    """The first of the sorted rows that is not before ``wanted``, or with ``after`` the first one after it."""
    low, high = 0, keys.height
    while low < high:
        middle = (low + high) // 2
        order = _compare(keys.row(middle), wanted, descending, nulls_last)
        if order < 0 or (after and order == 0):
            low = middle + 1
        else:
            high = middle
    return low


def _compare(
    first: tuple[object, ...], second: tuple[object, ...], descending: Sequence[bool], nulls_last: bool
) -> int:
    """Below, equal to or above 0, as the first row comes before the second, is equal to it, or comes after it."""
    for a, b, down in zip(first, second, descending, strict=True):
        if a is None or b is None:
            if a is b:
                continue
            return (1 if nulls_last else -1) * (1 if a is None else -1)
        a_nan, b_nan = a != a, b != b  # only NaN differs from itself
        order = (a_nan > b_nan) - (a_nan < b_nan) if a_nan or b_nan else (a > b) - (a < b)  # type: ignore[operator]
        if order:
            return -order if down else order
    return 0
