"""Parquet files, a range of whose rows each rank reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import polars as pl
from entrepot.errors import ObjectNotFound


@dataclass(frozen=True, slots=True)
class RowRange:
    """Consecutive rows of a file."""

    path: str
    begin: int
    count: int


def row_ranges(path: str | Path | Sequence[str | Path], rank: int, size: int) -> list[RowRange]:
    """The ranges that one of ``size`` ranks reads: together, all rows of all files.

    Returns:
        at least one range, which may be empty: it tells the columns.

    Raises:
        ObjectNotFound: there is no such file.
    """
    import pyarrow.parquet as pq

    files = _files(path)
    counts = [pq.read_metadata(file).num_rows for file in files]
    total = sum(counts)
    begin, end = total * rank // size, total * (rank + 1) // size
    ranges = []
    offset = 0
    for file, count in zip(files, counts, strict=True):
        first, last = max(begin - offset, 0), min(end - offset, count)
        if first < last:
            ranges.append(RowRange(file, first, last - first))
        offset += count
    return ranges or [RowRange(files[0], 0, 0)]


def scan_range(ranges: Sequence[RowRange]) -> pl.LazyFrame:
    """A query over ranges, which reads only the columns that it needs."""
    return pl.concat([pl.scan_parquet(part.path, glob=False).slice(part.begin, part.count) for part in ranges])


def _files(path: str | Path | Sequence[str | Path]) -> list[str]:
    paths = [path] if isinstance(path, str | Path) else list(path)
    files: list[str] = []
    for item in map(str, paths):
        if any(character in item for character in "*?["):
            matches = sorted(glob(item, recursive=True))
        elif Path(item).is_dir():
            matches = sorted(str(file) for file in Path(item).rglob("*.parquet"))
        else:
            matches = [item] if Path(item).is_file() else []
        if not matches:
            raise ObjectNotFound(f"there is no Parquet file {item!r}")
        files += matches
    return files
