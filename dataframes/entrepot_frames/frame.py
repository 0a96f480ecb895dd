"""A table whose rows are spread over the ranks of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl
from entrepot.errors import InvalidArgument

from entrepot_frames.operators.exchange import from_table, joined, same_columns, send_parts, shuffle, to_table
from entrepot_frames.operators.grouping import Aggregation, group_by
from entrepot_frames.operators.keys import key_type
from entrepot_frames.operators.merging import How, Join, merge
from entrepot_frames.operators.rows import Rows, output_names, plain_columns
from entrepot_frames.operators.sorting import sort

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from entrepot_frames.communicators.communicator import Communicator

IntoNames = str | Sequence[str]


class Frame:
    """Rows on all ranks of a program. Operations are lazy, and every rank has to call the same ones.

    What a rank can do alone becomes one query of Polars, from one exchange of rows to the next, which Polars
    optimises as a whole. An exchange happens when its result is first needed (by ``to_arrow()``, ``count_rows()``,
    ``env.put()`` and so on, and by a further exchange), and its result is kept as long as the frame is.

    Get one from ``env.read_parquet``, ``env.from_local`` or ``env.get``; do not create it.

    Args:
        communicator: of the ranks.
        evaluate: returns this rank's rows, the first time that they are needed.
    """

    def __init__(self, communicator: Communicator, evaluate: Callable[[], Rows]) -> None:
        self._communicator = communicator
        self._evaluate: Callable[[], Rows] | None = evaluate  # None: done
        self._rows: Rows | None = None  # what it returned

    # --- on each rank alone

    def filter(self, *predicates: pl.Expr) -> Frame:
        """Keep the rows for which all predicates, expressions of Polars, are true."""
        return self._mapped(lambda rows: Rows(rows.query.filter(*predicates), rows.together))

    def select(self, *columns: str | pl.Expr) -> Frame:
        """Keep these columns, names or expressions of Polars.

        An expression sees the rows of one rank: use those that compute each row by itself.
        """
        kept = plain_columns(columns)
        return self._mapped(
            lambda rows: Rows(rows.query.select(*columns), rows.together if rows.together <= kept else frozenset())
        )

    def with_columns(self, *columns: pl.Expr, **named: pl.Expr) -> Frame:
        """Add or replace columns, by expressions of Polars that compute each row by itself."""
        names = output_names(columns)
        changed = None if names is None else [*names, *named]

        def change(rows: Rows) -> Rows:
            query = rows.query.with_columns(*columns, **named)
            return Rows(query) if changed is None else Rows(query, rows.without(changed))

        return self._mapped(change)

    def rename(self, names: Mapping[str, str]) -> Frame:
        """Rename columns: new names by old ones."""
        return self._mapped(
            lambda rows: Rows(
                rows.query.rename(dict(names)), frozenset(names.get(column, column) for column in rows.together)
            )
        )

    def drop(self, *columns: str) -> Frame:
        """Leave out columns."""
        return self._mapped(lambda rows: Rows(rows.query.drop(*columns), rows.without(columns)))

    def map_partitions(self, function: Callable[[pl.DataFrame], pl.DataFrame]) -> Frame:
        """Replace each rank's rows by what ``function`` makes of them."""
        return self._mapped(lambda rows: Rows(function(rows.query.collect()).lazy()))

    # --- exchanges

    def merge(
        self,
        other: Frame,
        *,
        on: IntoNames | None = None,
        how: How = "inner",
        left_on: IntoNames | None = None,
        right_on: IntoNames | None = None,
        suffix: str = "_right",
    ) -> Frame:
        """Join with another frame.

        Args:
            other: of the same program.
            on: key columns that both have.
            how: ``"inner"``, ``"left"``, ``"right"``, ``"full"``, ``"semi"``, ``"anti"`` or ``"cross"``, with the
                columns that Polars' ``join`` gives.
            left_on, right_on: key columns, if they have other names.
            suffix: of columns of ``other`` whose name is taken.

        Null matches nothing, and NaN matches NaN. The order of the result is not defined.

        Raises:
            InvalidArgument: keys are missing, or cannot be compared; when the result is needed.
        """
        self._check_same_program(other, "merge")
        if on is not None and (left_on is not None or right_on is not None):
            raise InvalidArgument("merge: give either on=, or left_on= and right_on=")
        left_keys = _names(on if on is not None else left_on)
        right_keys = _names(on if on is not None else right_on)
        join = Join(how, tuple(left_keys), tuple(right_keys), suffix)
        return self._exchanged(
            "merge", lambda rows: merge(self._communicator, rows.query.collect(), other.to_polars(), join)
        )

    def groupby(self, keys: IntoNames) -> GroupedFrame:
        """Group by key columns; null is a key of its own. Continue with ``agg``."""
        return GroupedFrame(self, _names(keys))

    def sort_values(
        self, by: IntoNames, *, descending: bool | Sequence[bool] = False, nulls_last: bool = False
    ) -> Frame:
        """Sort the rows over all ranks: those of rank 0 come first. Equal rows keep their order on one rank only.

        Args:
            by: key columns.
            descending: for all of them, or for each.
            nulls_last: whether nulls come last; else first. NaN is larger than all numbers.

        Raises:
            InvalidArgument: no key, or not one ``descending`` for each.
        """
        names = _names(by)
        directions = [descending] * len(names) if isinstance(descending, bool) else list(descending)
        if not names or len(directions) != len(names):
            raise InvalidArgument(f"sort_values: {len(names)} key columns and {len(directions)} directions")
        return self._exchanged(
            "sort_values",
            lambda rows: Rows(sort(self._communicator, rows.query.collect(), names, directions, nulls_last).lazy()),
        )

    def drop_duplicates(self, subset: IntoNames | None = None) -> Frame:
        """Keep one row of those that are equal in the columns ``subset``; default: in all.

        Which one is kept is the first in the order of ranks and rows.
        """
        names = None if subset is None else _names(subset)
        return self._exchanged("drop_duplicates", lambda rows: self._distinct(rows, names))

    def repartition(self, by: IntoNames | None = None) -> Frame:
        """Spread the rows anew: equal keys together, or, without keys, the same number on each rank, in their order."""
        if by is None:
            return self._exchanged("repartition", self._balanced)
        names = _names(by)
        return self._exchanged("repartition", lambda rows: self._shuffled(rows, names, "repartition"))

    def concat(self, *others: Frame) -> Frame:
        """Put the rows of other frames below, on each rank; columns have to be the same ones."""
        for other in others:
            self._check_same_program(other, "concat")
        return self._mapped(
            lambda rows: Rows(
                pl.concat([rows.query, *(other._plan().query for other in others)], how="vertical_relaxed")
            )
        )

    def head(self, n: int = 5) -> Frame:
        """The first rows, in the order of ranks; they stay where they are."""
        return self._exchanged("head", lambda rows: self._first(rows, n))

    # --- results

    def count_rows(self) -> int:
        """Number of rows of all ranks; on every rank."""
        rows = self.to_polars()
        with self._communicator.within("count_rows"):
            return self._communicator.all_gather_sums([rows.height])[0]

    def to_polars(self) -> pl.DataFrame:
        """This rank's rows; what was computed once is kept."""
        plan = self._plan()
        rows = plan.query.collect()
        self._rows = Rows(rows.lazy(), plan.together)
        return rows

    def to_arrow(self) -> pa.Table:
        """This rank's rows as an Arrow table."""
        return to_table(self.to_polars())

    def to_pandas(self) -> pd.DataFrame:
        """This rank's rows as a pandas frame, its columns backed by Arrow where pandas has no type of its own."""
        return self.to_polars().to_pandas()

    def to_numpy(self) -> dict[str, np.ndarray[Any, Any]]:
        """This rank's columns as arrays; without a copy where a column has no nulls and lies in one piece."""
        return {column.name: column.to_numpy() for column in self.to_polars().rechunk()}

    def to_torch(self) -> dict[str, Any]:
        """This rank's columns as PyTorch tensors: copies, because tensors can be written and stored columns cannot.

        Raises:
            InvalidArgument: a column has nulls or is not numeric.
        """
        import torch  # pyright: ignore[reportMissingImports]

        tensors: dict[str, Any] = {}
        for column in self.to_polars().rechunk():
            if column.null_count() or not column.dtype.is_numeric():
                raise InvalidArgument(
                    f"column {column.name!r} of type {column.dtype} with {column.null_count()} nulls has no tensor: "
                    "fill nulls and use numbers"
                )
            values = column.to_numpy()
            tensors[column.name] = torch.from_numpy(values if values.flags.writeable else values.copy())
        return tensors

    def gather(self, root: int = 0) -> pl.DataFrame | None:
        """All rows, in the order of ranks, on rank ``root``; None on the others."""
        rows = self.to_polars()
        with self._communicator.within("gather"):
            rows = same_columns(self._communicator, rows, "gather")
            tables = self._communicator.gather(to_table(rows), root)
        return None if tables is None else joined([from_table(table) for table in tables])

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "a Frame belongs to the ranks of its program and cannot be sent: return frame.to_arrow() from each rank, "
            "or store it by env.put(name, frame)"
        )

    # --- inside

    def _plan(self) -> Rows:
        if self._evaluate is not None:
            self._rows = self._evaluate()
            self._evaluate = None  # lets go of the frames that it was made from
        assert self._rows is not None
        return self._rows

    def _mapped(self, change: Callable[[Rows], Rows]) -> Frame:
        return Frame(self._communicator, lambda: change(self._plan()))

    def _exchanged(self, operator: str, change: Callable[[Rows], Rows]) -> Frame:
        def evaluate() -> Rows:
            rows = self._plan()
            with self._communicator.within(operator):
                return change(rows)

        return Frame(self._communicator, evaluate)

    def _check_same_program(self, other: Frame, operator: str) -> None:
        if not isinstance(other, Frame) or other._communicator is not self._communicator:
            raise InvalidArgument(f"{operator} needs another Frame of the same program, not {type(other).__name__}")

    def _shuffled(self, rows: Rows, keys: Sequence[str], operator: str) -> Rows:
        names = rows.query.collect_schema().names()
        for key in keys:
            if key not in names:
                raise InvalidArgument(f"{operator}: there is no column {key!r}, only {names}")
        if rows.has_together(keys):
            return rows
        frame = same_columns(self._communicator, rows.query.collect(), operator)
        types = {key: key_type([frame.schema[key]], operator) for key in keys}
        return Rows(shuffle(self._communicator, frame, keys, types).lazy(), frozenset(keys))

    def _distinct(self, rows: Rows, names: Sequence[str] | None) -> Rows:
        query = rows.query
        columns = query.collect_schema().names()
        keys = columns if names is None else names
        if self._communicator.size > 1 and set(keys) <= set(columns):
            query = query.unique(keys, keep="first", maintain_order=True)
        shuffled = self._shuffled(Rows(query, rows.together), keys, "drop_duplicates")
        return Rows(shuffled.query.unique(keys, keep="first", maintain_order=True), shuffled.together)

    def _balanced(self, rows: Rows) -> Rows:
        communicator = self._communicator
        frame = same_columns(communicator, rows.query.collect(), "repartition")
        counts = [int(count) for count in communicator.all_gather(frame.height)]
        total, before, size = sum(counts), sum(counts[: communicator.rank]), communicator.size
        parts = []
        for rank in range(size):
            begin = max(total * rank // size - before, 0)
            end = min(total * (rank + 1) // size - before, frame.height)
            parts.append(frame.slice(begin, end - begin) if begin < end else frame.clear())
        return Rows(joined(send_parts(communicator, parts)).lazy())

    def _first(self, rows: Rows, n: int) -> Rows:
        frame = rows.query.head(max(n, 0)).collect()
        counts = [int(count) for count in self._communicator.all_gather(frame.height)]
        return Rows(frame.head(max(0, n - sum(counts[: self._communicator.rank]))).lazy(), rows.together)


class GroupedFrame:
    """A frame with keys; see :meth:`Frame.groupby`.

    Args:
        frame: what is grouped.
        keys: columns.
    """

    def __init__(self, frame: Frame, keys: Sequence[str]) -> None:
        self._frame = frame
        self._keys = keys

    def agg(
        self,
        columns: Mapping[str, str | Iterable[str]] | None = None,
        *expressions: pl.Expr,
        **named: tuple[str, str],
    ) -> Frame:
        """Aggregate each group; every group is on one rank then.

        Rows are aggregated before they change ranks, where each function can be computed in two steps, and a sample
        shows that keys repeat.

        Args:
            columns: functions by column, ``{"price": ["sum", "mean"]}``: the result has ``price_sum`` and
                ``price_mean``. Functions: sum, min, max, count (without nulls), len (with nulls), mean, var, std,
                first, last, median, n_unique.
            expressions: aggregations of Polars; the rows of a group are brought together first.
            named: ``total=("price", "sum")``.

        Raises:
            InvalidArgument: nothing to compute; when the result is needed: a missing column, or an unknown function.
        """
        items = [Aggregation(name, column, function) for name, (column, function) in named.items()]
        for column, functions in (columns or {}).items():
            for function in [functions] if isinstance(functions, str) else functions:
                items.append(Aggregation(f"{column}_{function}", column, function))
        if not items and not expressions:
            raise InvalidArgument('agg: nothing to compute; for example agg(total=("price", "sum"))')
        communicator, keys = self._frame._communicator, self._keys
        return self._frame._exchanged("groupby", lambda rows: group_by(communicator, rows, keys, items, expressions))


def _names(names: IntoNames | None) -> list[str]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(names)
