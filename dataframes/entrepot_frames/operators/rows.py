"""The rows of one rank, as a query that has not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Rows:
    """One rank's part of a frame.

    Attributes:
        query: the rows.
        together: key columns whose equal rows are all on the same rank, for all sorts of keys that contain these;
            empty: nothing is known. The same on all ranks.
    """

    query: pl.LazyFrame
    together: frozenset[str] = frozenset()

    def has_together(self, keys: Sequence[str]) -> bool:
        """Whether rows with equal ``keys`` are on the same rank already."""
        return bool(self.together) and self.together <= set(keys)

    def without(self, changed: Sequence[str]) -> frozenset[str]:
        """What is still known after some columns were changed."""
        return self.together if self.together.isdisjoint(changed) else frozenset()


def plain_columns(columns: Sequence[str | pl.Expr]) -> set[str]:
    """Those of the selected columns that are taken as they are, under their own names.

    >>> sorted(plain_columns(["a", pl.col("b"), pl.col("c") + 1, pl.col("d").alias("e")]))
    ['a', 'b']
    """
    plain = {column for column in columns if isinstance(column, str)}
    for column in columns:
        if isinstance(column, pl.Expr):
            names = column.meta.root_names()
            if len(names) == 1 and column.meta == pl.col(names[0]).meta:
                plain.add(names[0])
    return plain


def output_names(columns: Sequence[pl.Expr]) -> list[str] | None:
    """Names of computed columns; None: they are not known before the query runs."""
    names = []
    for column in columns:
        name = column.meta.output_name(raise_if_undetermined=False)
        if name is None or column.meta.has_multiple_outputs():
            return None
        names.append(name)
    return names
