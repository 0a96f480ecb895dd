"""Rows that change ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from entrepot.errors import InvalidArgument

from entrepot_frames.operators.keys import partition_of, split

if TYPE_CHECKING:
    import pyarrow as pa

    from entrepot_frames.communicators.communicator import Communicator


def to_table(frame: pl.DataFrame) -> pa.Table:
    """A frame as an Arrow table for another process.

    Strings become offsets and bytes of these rows alone: Polars' own views would bring all bytes of the frame that
    the rows were taken from.
    """
    table: Any = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    return table


def from_table(table: Any) -> pl.DataFrame:
    """An Arrow table, or a frame that has not left this rank, as a frame that uses its memory."""
    if isinstance(table, pl.DataFrame):
        return table
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def joined(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Parts of one schema, one below the other."""
    filled = [part for part in parts if part.height]
    return pl.concat(filled, how="vertical", rechunk=False) if filled else parts[0]


def send_parts(communicator: Communicator, parts: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Send ``parts[i]`` to rank ``i``; return what has arrived from each rank, in their order."""
    own = communicator.rank
    received = communicator.all_to_all([part if rank == own else to_table(part) for rank, part in enumerate(parts)])
    return [from_table(part) for part in received]


def shuffle(
    communicator: Communicator, frame: pl.DataFrame, keys: Sequence[str], types: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    """Bring rows with equal keys to the same rank.

    Args:
        communicator: of the ranks.
        frame: this rank's rows.
        keys: columns.
        types: of the keys, for the comparison, the same on all ranks.

    Returns:
        the rows that belong to this rank, those of rank 0 first, in their order there.
    """
    size = communicator.size
    if size == 1:
        return frame
    return joined(send_parts(communicator, split(frame, partition_of(keys, types, size), size)))


def broadcast_all(communicator: Communicator, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of all ranks, on every rank; those of rank 0 first."""
    if communicator.size == 1:
        return frame
    own = communicator.rank
    parts = communicator.all_gather(to_table(frame))
    return joined([frame if rank == own else from_table(part) for rank, part in enumerate(parts)])


def same_columns(communicator: Communicator, frame: pl.DataFrame, what: str) -> pl.DataFrame:
    """Give the rows of all ranks the same column types: a rank without values may know fewer of them.

    Raises:
        InvalidArgument: the ranks have other columns, or types that do not go together.
    """
    if communicator.size == 1:
        return frame
    empties = [from_table(table) for table in communicator.all_gather(to_table(frame.clear()))]
    first = empties[0].schema
    if all(empty.schema == first for empty in empties):
        return frame
    for rank, empty in enumerate(empties):
        if empty.columns != empties[0].columns:
            raise InvalidArgument(
                f"{what}: rank {rank} has the columns {empty.columns}, and rank 0 has {empties[0].columns}: select the "
                "same ones, in the same order, on all ranks"
            )
    try:
        unified = pl.concat(empties, how="vertical_relaxed").schema
    except pl.exceptions.PolarsError as error:
        raise InvalidArgument(f"{what}: the ranks have columns of types that do not go together: {error}") from error
    return frame.cast(unified)
