"""Groups, aggregated before rows change ranks where that makes them fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
from entrepot.errors import InvalidArgument

from entrepot_frames.operators.exchange import same_columns, shuffle
from entrepot_frames.operators.keys import key_type
from entrepot_frames.operators.rows import Rows

if TYPE_CHECKING:
    from entrepot_frames.communicators.communicator import Communicator

# With more distinct keys per row than this, aggregating first takes longer than it saves.
DISTINCT_SHARE = 0.7
SAMPLE_ROWS = 100_000


@dataclass(frozen=True)
class Aggregation:
    """One column of the result.

    Attributes:
        name: of the column.
        column: what is aggregated.
        function: a key of ``FUNCTIONS``.
    """

    name: str
    column: str
    function: str


@dataclass(frozen=True)
class _Function:
    """How a function is computed.

    Attributes:
        whole: over all rows of a group.
        partial: columns over a part of the rows, by the end of their names; empty: there is no such way.
        final: over the rows of partial columns of a group, whose names begin with the argument.
        numeric: whether the partial way is one for numbers only.
    """

    whole: Callable[[pl.Expr], pl.Expr]
    partial: Callable[[pl.Expr], dict[str, pl.Expr]] = lambda _: {}
    final: Callable[[str], pl.Expr] | None = None
    numeric: bool = False


def _moments(column: pl.Expr) -> dict[str, pl.Expr]:
    values = column.cast(pl.Float64)
    return {"n": values.count(), "mean": values.mean(), "m2": values.var(ddof=0) * values.count()}


def _variance(name: str) -> pl.Expr:
    """From the moments of parts, without cancellation: Chan, Golub and LeVeque, "Updating Formulae" (1979)."""
    n, mean, m2 = (pl.col(f"{name}:{part}") for part in ("n", "mean", "m2"))
    total = n.sum()
    overall = (n * mean).sum() / total
    squares = (m2 + n * (mean - overall) ** 2).sum()
    return pl.when(total > 1).then(squares / (total.cast(pl.Float64) - 1))


FUNCTIONS: dict[str, _Function] = {
    "sum": _Function(pl.Expr.sum, lambda c: {"": c.sum()}, lambda n: pl.col(f"{n}:").sum(), numeric=True),
    "min": _Function(pl.Expr.min, lambda c: {"": c.min()}, lambda n: pl.col(f"{n}:").min()),
    "max": _Function(pl.Expr.max, lambda c: {"": c.max()}, lambda n: pl.col(f"{n}:").max()),
    "count": _Function(pl.Expr.count, lambda c: {"": c.count()}, lambda n: pl.col(f"{n}:").sum()),
    "len": _Function(lambda _: pl.len(), lambda _: {"": pl.len()}, lambda n: pl.col(f"{n}:").sum()),
    "mean": _Function(
        pl.Expr.mean,
        lambda c: {"sum": c.cast(pl.Float64).sum(), "n": c.count()},
        lambda n: pl.when(pl.col(f"{n}:n").sum() > 0).then(pl.col(f"{n}:sum").sum() / pl.col(f"{n}:n").sum()),
        numeric=True,
    ),
    "var": _Function(pl.Expr.var, _moments, _variance, numeric=True),
    "std": _Function(pl.Expr.std, _moments, lambda n: _variance(n).sqrt(), numeric=True),
    "first": _Function(pl.Expr.first, lambda c: {"": c.first()}, lambda n: pl.col(f"{n}:").first()),
    "last": _Function(pl.Expr.last, lambda c: {"": c.last()}, lambda n: pl.col(f"{n}:").last()),
    "median": _Function(pl.Expr.median),
    "n_unique": _Function(pl.Expr.n_unique),
}


def group_by(
    communicator: Communicator,
    rows: Rows,
    keys: Sequence[str],
    aggregations: Sequence[Aggregation],
    expressions: Sequence[pl.Expr] = (),
) -> Rows:
    """Aggregate the groups of equal keys over all ranks; each group is on one rank. Null is a key.

    Args:
        communicator: of the ranks.
        rows: of this rank.
        keys: columns, at least one.
        aggregations: columns of the result.
        expressions: further ones, as for Polars' ``agg``: their groups are brought together row by row.

    Raises:
        InvalidArgument: no key, a missing column, or an unknown function.
    """
    if not keys:
        raise InvalidArgument("groupby needs at least one key column")
    schema = rows.query.collect_schema()
    for column in (*keys, *(item.column for item in aggregations if item.function != "len")):
        if column not in schema:
            raise InvalidArgument(f"groupby: there is no column {column!r}, only {schema.names()}")
    for item in aggregations:
        if item.function not in FUNCTIONS:
            raise InvalidArgument(f"groupby: unknown function {item.function!r}: use one of {', '.join(FUNCTIONS)}")
    together = frozenset(keys)
    wholes = [FUNCTIONS[item.function].whole(pl.col(item.column)).alias(item.name) for item in aggregations]
    if communicator.size == 1 or rows.has_together(keys):
        return Rows(rows.query.group_by(keys).agg(*wholes, *expressions), together)
    if not expressions:
        needed = {*keys, *(item.column for item in aggregations if item.column in schema)}
        rows = Rows(rows.query.select([column for column in schema if column in needed]))
    frame = same_columns(communicator, rows.query.collect(), "groupby")
    types = {key: key_type([frame.schema[key]], "groupby") for key in keys}
    if expressions or not _is_worth_it(communicator, frame, keys, aggregations):
        shuffled = shuffle(communicator, frame, keys, types)
        return Rows(shuffled.lazy().group_by(keys).agg(*wholes, *expressions), together)
    partials = [
        expression.alias(f"{item.name}:{end}")
        for item in aggregations
        for end, expression in FUNCTIONS[item.function].partial(pl.col(item.column)).items()
    ]
    result_types = frame.clear().group_by(keys).agg(*wholes).schema
    partly = shuffle(communicator, frame.group_by(keys).agg(*partials), keys, types)
    finals = [
        final(item.name).cast(result_types[item.name]).alias(item.name)
        for item in aggregations
        if (final := FUNCTIONS[item.function].final) is not None
    ]
    return Rows(partly.lazy().group_by(keys).agg(*finals), together)


def _is_worth_it(
    communicator: Communicator, frame: pl.DataFrame, keys: Sequence[str], aggregations: Sequence[Aggregation]
) -> bool:
    """Whether every aggregation can be computed in two steps, and keys repeat often enough."""
    for item in aggregations:
        function = FUNCTIONS[item.function]
        if function.final is None or (function.numeric and not frame.schema[item.column].is_numeric()):
            return False
    sample = frame.select(keys).head(SAMPLE_ROWS)
    rows, distinct = communicator.all_gather_sums([sample.height, sample.n_unique() if sample.height else 0])
    return distinct <= DISTINCT_SHARE * rows
