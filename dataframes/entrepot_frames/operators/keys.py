"""Keys: their common types on all ranks, and the rank that each row belongs to by its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import polars as pl
from entrepot.errors import InvalidArgument, UnsupportedType

PARTITION = "__entrepot_partition__"


def key_type(types: Sequence[pl.DataType], what: str) -> pl.DataType:
    """The type that key columns are compared in; columns of different types are cast to it.

    Args:
        types: of the columns that are compared.
        what: for the error.

    Raises:
        InvalidArgument: they cannot be compared.

    >>> key_type([pl.Int32(), pl.Int64()], "keys")
    Int64
    """
    result = types[0]
    for candidate in types[1:]:
        result = _common(result, candidate, what)
    if isinstance(result, pl.Categorical | pl.Enum):
        return pl.String()  # ranks number their categories differently
    if result.is_nested() or isinstance(result, pl.Object):
        raise UnsupportedType(f"{what}: columns of type {result} cannot be keys; use columns of plain values")
    return result


def _common(first: pl.DataType, second: pl.DataType, what: str) -> pl.DataType:
    if first == second:
        return first
    texts = (pl.String, pl.Categorical, pl.Enum)
    if isinstance(first, texts) and isinstance(second, texts):
        return pl.String()
    if isinstance(first, pl.Null):
        return second
    if isinstance(second, pl.Null):
        return first
    if first.is_numeric() and second.is_numeric():
        return pl.DataFrame(schema={"key": first}).select(pl.col("key") + pl.lit(0, dtype=second)).schema["key"]
    if isinstance(first, pl.Datetime) and isinstance(second, pl.Datetime) and first.time_zone == second.time_zone:
        units: list[Literal["ms", "us", "ns"]] = ["ms", "us", "ns"]
        return pl.Datetime(units[max(units.index(first.time_unit), units.index(second.time_unit))], first.time_zone)
    raise InvalidArgument(f"{what}: {first} and {second} cannot be compared; cast one of the columns")


def partition_of(keys: Sequence[str], types: Mapping[str, pl.DataType], size: int) -> pl.Expr:
    """The rank, 0 to ``size - 1``, of each row, by its keys; equal keys have equal ranks on every rank.

    Keys are equal as in Polars' joins and groups: null to null, NaN to NaN, -0.0 to 0.0.
    """
    columns = [pl.col(key).cast(types[key]) for key in keys]
    # Another seed than the hash tables of joins and groups have, in which a rank's rows would collide otherwise.
    hashed = (columns[0] if len(columns) == 1 else pl.struct(columns)).hash(seed=0x9E37)
    return (hashed % size).cast(pl.UInt32)


def split(frame: pl.DataFrame, assignment: pl.Expr, size: int) -> list[pl.DataFrame]:
    """Split a frame by the rank that ``assignment`` gives each row; rows keep their order."""
    if size == 1:
        return [frame]
    marked = frame.with_columns(assignment.alias(PARTITION))
    if size == 2:
        first = marked[PARTITION] == 0
        return [frame.filter(first), frame.filter(~first)]
    parts = marked.partition_by(PARTITION, include_key=False, as_dict=True, maintain_order=True)
    empty = frame.clear()
    return [parts.get((rank,), empty) for rank in range(size)]


def heavy_keys(sample: pl.DataFrame, keys: Sequence[str], rows: float) -> pl.DataFrame:
    """The keys that more than ``rows`` rows have, as far as a sample tells.

    Args:
        sample: with the keys, and ``weight``: how many rows a row of the sample stands for.
        keys: columns.
        rows: above which a key is heavy.
    """
    counts = sample.group_by(keys).agg(pl.col("weight").sum(), pl.len().alias("count"))
    # One row of a small sample of many rows proves nothing.
    return counts.filter((pl.col("weight") > rows) & (pl.col("count") > 8)).select(keys)
