"""Joins of two frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import polars as pl
from entrepot.errors import InvalidArgument

from entrepot_frames.operators.exchange import broadcast_all, from_table, joined, same_columns, send_parts, to_table
from entrepot_frames.operators.keys import heavy_keys, key_type, partition_of, split
from entrepot_frames.operators.rows import Rows

if TYPE_CHECKING:
    from entrepot_frames.communicators.communicator import Communicator

How = Literal["inner", "left", "right", "full", "semi", "anti", "cross"]

SAMPLE_ROWS = 4096  # of each rank and side, to find heavy keys
# A key is heavy if its rows alone are more than this part of a rank's fair share.
HEAVY_SHARE = 0.25


@dataclass(frozen=True)
class Join:
    """What is joined, and how.

    Attributes:
        how: as Polars' ``join``.
        left_on, right_on: key columns.
        suffix: of right columns whose name is taken.
    """

    how: How
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    suffix: str = "_right"

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise InvalidArgument(f"how={self.how!r} is unknown: use one of {', '.join(get_args(How))}")
        if self.how == "cross":
            if self.left_on or self.right_on:
                raise InvalidArgument("a cross join has no keys: leave out on=, left_on= and right_on=")
        elif not self.left_on or len(self.left_on) != len(self.right_on):
            raise InvalidArgument(
                f"a join needs as many key columns on the left ({list(self.left_on)}) as on the right "
                f"({list(self.right_on)}), and at least one"
            )

    def apply(self, left: pl.DataFrame, right: pl.DataFrame, *, together: bool = False) -> Rows:
        """Join rows of one rank; ``together``: rows of equal keys of both sides are on one rank."""
        if self.how == "cross":
            return Rows(left.lazy().join(right.lazy(), how="cross", suffix=self.suffix))
        query = left.lazy().join(
            right.lazy(), how=self.how, left_on=self.left_on, right_on=self.right_on, suffix=self.suffix
        )
        return Rows(query, self._keys_in_result() if together else frozenset())

    def _keys_in_result(self) -> frozenset[str]:
        """Key columns of the result that tell the rank of a row; none where some rows stay where they are."""
        if self.how in ("inner", "semi"):
            return frozenset(self.left_on)
        return frozenset()


def merge(communicator: Communicator, left: pl.DataFrame, right: pl.DataFrame, join: Join) -> Rows:
    """Join the rows of all ranks; each result row is on one rank.

    The side that is small enough is sent to all ranks, and the other one stays where it is. Otherwise both are
    shuffled by their keys, except for

    - rows with a null in a key, which match nothing: they stay where they are;
    - the rows of keys that so many rows of one side have that a rank would get much more than its share: they stay,
      and the other side's rows of these keys are sent to all ranks (found by sampling; see DeWitt et al., "Practical
      Skew Handling in Parallel Joins", VLDB 1992).

    Raises:
        InvalidArgument: a missing column, or keys that cannot be compared.
    """
    size = communicator.size
    left, right = same_columns(communicator, left, "merge, left"), same_columns(communicator, right, "merge, right")
    if join.how == "cross":
        if _total_bytes(communicator, left) < _total_bytes(communicator, right):
            return join.apply(broadcast_all(communicator, left), right)
        return join.apply(left, broadcast_all(communicator, right))
    left, right = _with_common_keys(left, right, join)
    if join.how in ("semi", "anti"):
        right = right.select(join.right_on).unique()
    if size == 1:
        return join.apply(left, right, together=True)
    survey = _Survey.of(communicator, left, right, join)
    if join.how in ("inner", "left", "semi", "anti") and survey.right_bytes * size < survey.left_bytes:
        return join.apply(left, broadcast_all(communicator, right))
    if join.how in ("inner", "right") and survey.left_bytes * size < survey.right_bytes:
        return join.apply(broadcast_all(communicator, left), right)
    left_heavy = survey.left_heavy
    # A key that is heavy on both sides: the left rows stay.
    both = _is_among(survey.right_heavy, join.right_on, left_heavy, join.left_on)
    right_heavy = survey.right_heavy.filter(~both)
    moved_left, left_copies = _distribute(communicator, left, join.left_on, left_heavy, right_heavy, join.right_on)
    moved_right, right_copies = _distribute(communicator, right, join.right_on, right_heavy, left_heavy, join.left_on)
    # Rows that were sent to all ranks have a match on some rank. Where they have none, they are not this rank's
    # unmatched rows.
    left_copies = left_copies.filter(_is_among(left_copies, join.left_on, moved_right, join.right_on))
    right_copies = right_copies.filter(_is_among(right_copies, join.right_on, moved_left, join.left_on))
    return join.apply(
        joined([moved_left, left_copies]),
        joined([moved_right, right_copies]),
        together=left_heavy.is_empty() and right_heavy.is_empty(),
    )


@dataclass(frozen=True)
class _Survey:
    """Sizes and heavy keys of both sides, over all ranks."""

    left_bytes: int
    right_bytes: int
    left_heavy: pl.DataFrame
    right_heavy: pl.DataFrame

    @classmethod
    def of(cls, communicator: Communicator, left: pl.DataFrame, right: pl.DataFrame, join: Join) -> _Survey:
        own = [
            [frame.height, int(frame.estimated_size()), to_table(_sample(frame.select(keys)))]
            for frame, keys in ((left, join.left_on), (right, join.right_on))
        ]
        gathered: list[Any] = communicator.all_gather(own)
        sides = []
        for side, keys in enumerate((join.left_on, join.right_on)):
            rows = [entry[side][0] for entry in gathered]
            nbytes = sum(entry[side][1] for entry in gathered)
            # Each rank's sample counts by the rows that it stands for.
            samples = [
                from_table(entry[side][2]).with_columns(pl.lit(count / max(1, min(count, SAMPLE_ROWS))).alias("weight"))
                for entry, count in zip(gathered, rows, strict=True)
            ]
            share = HEAVY_SHARE / communicator.size
            sides.append((nbytes, heavy_keys(joined(samples).drop_nulls(keys), keys, share * sum(rows))))
        (left_bytes, left_heavy), (right_bytes, right_heavy) = sides
        return cls(left_bytes, right_bytes, left_heavy, right_heavy)


def _sample(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sample(SAMPLE_ROWS, seed=0) if frame.height > SAMPLE_ROWS else frame


def _total_bytes(communicator: Communicator, frame: pl.DataFrame) -> int:
    return int(communicator.all_reduce(int(frame.estimated_size())))


def _with_common_keys(left: pl.DataFrame, right: pl.DataFrame, join: Join) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cast key columns of different types to a common one."""
    for frame, keys, side in ((left, join.left_on, "left"), (right, join.right_on, "right")):
        for key in keys:
            if key not in frame.columns:
                raise InvalidArgument(f"merge: the {side} frame has no column {key!r}, only {frame.columns}")
    for left_key, right_key in zip(join.left_on, join.right_on, strict=True):
        types = (left.schema[left_key], right.schema[right_key])
        common = key_type(types, f"merge on {left_key!r} and {right_key!r}")
        if types[0] != types[1]:
            left, right = left.cast({left_key: common}), right.cast({right_key: common})
    return left, right


def _distribute(
    communicator: Communicator,
    frame: pl.DataFrame,
    keys: Sequence[str],
    staying: pl.DataFrame,
    replicated: pl.DataFrame,
    replicated_keys: Sequence[str],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Send each row where its key belongs; returns this rank's rows, and those that were sent to all ranks."""
    size = communicator.size
    types = {key: key_type([frame.schema[key]], "merge") for key in keys}
    everywhere = frame.clear()
    if replicated.height:
        is_replicated = _is_among(frame, keys, replicated, replicated_keys)
        everywhere, frame = frame.filter(is_replicated), frame.filter(~is_replicated)
    stays = pl.any_horizontal(pl.col(key).is_null() for key in keys)
    if staying.height:
        stays = stays | pl.lit(_is_among(frame, keys, staying, keys))
    own = pl.lit(communicator.rank, dtype=pl.UInt32)
    parts = split(frame, pl.when(stays).then(own).otherwise(partition_of(keys, types, size)), size)
    moved = joined(send_parts(communicator, parts))
    return moved, broadcast_all(communicator, everywhere) if replicated.height else everywhere


def _is_among(frame: pl.DataFrame, keys: Sequence[str], others: pl.DataFrame, other_keys: Sequence[str]) -> pl.Series:
    """For each row, whether its keys are among those of ``others``; false if one of them is null."""
    if frame.is_empty() or others.is_empty():
        return pl.Series([False], dtype=pl.Boolean).new_from_index(0, frame.height)
    marked = others.select(other_keys).unique().with_columns(pl.lit(True).alias("__entrepot_among__"))
    # Lazily: on two sorted columns, a join of Polars that is not lazy loses NaN (Polars 2.1).
    matches = (
        frame.lazy()
        .select(keys)
        .join(marked.lazy(), left_on=list(keys), right_on=list(other_keys), how="left", maintain_order="left")
        .collect()
    )
    return matches["__entrepot_among__"].fill_null(False)
