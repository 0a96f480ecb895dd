"""Hash aggregations: one hash table a page, split when it is full; partial results are spilled, and merged when read.

States::

    written ──all writers have closed, and somebody reads──▶ sealed ──discard──▶ (gone)
      └──a writer died or gave up──▶ failed ──discard, or the end of the session──▶ (gone)

Its pages are those of a shuffle (shuffle.py): who writes, who has finished and what there is to delete is as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from entrepot import _core
from entrepot._services.aggregate_plan import Aggregates, BoundPlan, parse_plan
from entrepot._services.partitioning import key_columns
from entrepot._services.service_writer import WAIT_SECONDS, Finished, ServiceWriter
from entrepot._services.shuffle import Shuffle
from entrepot._services.shuffle_layout import AGGREGATION, ShuffleLayout
from entrepot._services.tables import to_table
from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

    from entrepot._services.manifest import WriterSlots
    from entrepot._services.store_access import ServiceStore
    from entrepot._streams.writer import StreamWriter

_OPEN_SHARE = 2  # the tables of all writers take at most this part of the store


class Aggregation:
    """A hash aggregation of one session, as this process has it open. Created by :meth:`Store.hash_aggregate`.

    Thread-safe.

    Attributes:
        name: its name within the session.
        by: names of the key columns.
        partitions: in how many parts the result can be read.
        writers: how many writers it expects in total.

    >>> import entrepot
    >>> import pyarrow as pa
    >>> revenue = entrepot.connect().hash_aggregate("revenue", "customer", {"sum": ("price", "sum")}, writers=1)
    >>> with revenue.writer() as writer:
    ...     writer.append(pa.table({"customer": ["ann", "ann"], "price": [5.0, 1.0]}))
    >>> [row for table in revenue.tables(timeout=60) for row in table.to_pylist()]
    [{'customer': 'ann', 'sum': 6.0}]
    >>> revenue.discard()
    """

    def __init__(
        self,
        store: ServiceStore,
        name: str,
        by: str | Sequence[str] | None,
        aggregates: Aggregates | None,
        partitions: SupportsIndex | None,
        writers: SupportsIndex | None,
        page_bytes: SupportsIndex | str | None,
    ) -> None:
        if (by is None) != (aggregates is None):
            raise InvalidArgument("pass both by= and aggregates=, or, where others have passed them, neither")
        plan = None if by is None or aggregates is None else parse_plan(by, aggregates)
        self._store = store
        self._pages = Shuffle(store, name, partitions, writers, None, False, page_bytes, AGGREGATION, plan)
        self._plan: dict[str, Any] = self._pages.layout.plan or {}
        self.name = name
        self.by: list[str] = list(self._plan["by"])
        self.partitions = self._pages.partitions
        self.writers = self._pages.writers

    def writer(self) -> AggregationWriter:
        """Open one of the aggregation's writers, for this process; a context manager that closes it.

        Raises:
            ObjectExists: the aggregation is sealed, or another one of this name has had all its writers.
            InvalidArgument: all writers that it expects are open already.
            StreamFailed: it has failed: a writer died or gave up.
        """
        layout = self._pages.layout
        stream = self._pages.open_stream()
        return AggregationWriter(self._store, self.name, layout, self._plan, self._pages.slots, stream)

    def read(self, partition: int, *, timeout: float | None = None) -> pa.Table:
        """Merge the partial results of one partition, and return them as a ``pyarrow.Table``: a row for each key.

        Each key is in one partition only. The table is in this process's memory.

        Args:
            partition: its number; different processes may read different ones.
            timeout: seconds to wait until all writers have closed; None: no limit.

        Raises:
            Timeout: writers were still open, or had not come.
            StreamFailed: a writer died or gave up, so there is no result.
            InvalidArgument: there is no such partition; no rows were written, so that the columns are not known; a sum
                of integers exceeds 64 bits; or writers wrote columns of different types.
            ObjectLost: a page is gone.
        """
        import pyarrow as pa

        self._pages.seal(timeout=timeout)
        raw = self._pages.schema_bytes()
        if raw is None:
            raise InvalidArgument(f"no rows were written to aggregation {self.name!r}, so their columns are not known")
        plan = BoundPlan(self._plan, pa.ipc.read_schema(pa.py_buffer(raw)))
        merger = _core.AggregateMerger(plan.widths, plan.kinds)
        for page in self._pages.pages(partition):
            merger.add(page.view)
        return plan.result(merger)

    def tables(self, *, timeout: float | None = None) -> Iterator[pa.Table]:
        """Return the result partition by partition, so that only one of them is in memory at a time.

        Args and Raises:
            As :meth:`read`.
        """
        for partition in range(self.partitions):
            yield self.read(partition, timeout=timeout)

    def to_arrow(self, *, timeout: float | None = None) -> pa.Table:
        """Return the whole result as one ``pyarrow.Table``, in no particular order.

        Args and Raises:
            As :meth:`read`.
        """
        import pyarrow as pa

        # Text of more than 2 GiB in one partition makes that partition's column a large one.
        return pa.concat_tables(self.tables(timeout=timeout), promote_options="permissive")

    def discard(self) -> None:
        """Delete the aggregation with all its pages, also those of writers that died; as :meth:`Shuffle.discard`."""
        self._pages.discard()

    def __repr__(self) -> str:
        return f"<entrepot.Aggregation {self.name!r} by={self.by} partitions={self.partitions} writers={self.writers}>"


class AggregationWriter(ServiceWriter):
    """One process's end of an aggregation. Threads may share it; they take turns.

    It belongs to the process that opened it: a forked child has to open its own.

    >>> import entrepot
    >>> import pyarrow as pa
    >>> orders = entrepot.connect().hash_aggregate("orders", "customer", {"orders": "count"}, writers=1)
    >>> with orders.writer() as writer:  # in each process that has rows
    ...     writer.append(pa.table({"customer": ["ann", "bob"]}))
    >>> orders.discard()
    """

    def __init__(
        self,
        store: ServiceStore,
        name: str,
        layout: ShuffleLayout,
        plan: dict[str, Any],
        slots: WriterSlots,
        stream: StreamWriter,
    ) -> None:
        super().__init__(store, name, AGGREGATION, layout.writers, slots, stream)
        self._layout = layout
        self._plan = plan
        self._bound: BoundPlan | None = None  # guarded by _lock; None: no rows yet
        self._raw: _core.PageAggregator | None = None  # guarded by _lock

    @property
    def spilled_pages(self) -> int:
        """How many pages were given up as partial results, because this writer's tables exceeded their part of memory.

        After that, a key may be in several pages; they are merged when the result is read.
        """
        raw = self._raw
        return 0 if raw is None else raw.spilled_pages

    def append(self, rows: Any) -> None:
        """Aggregate the rows of a table.

        Args:
            rows: a ``pyarrow.RecordBatch`` or ``pyarrow.Table``, or anything else with the Arrow C stream interface.
                Columns that are neither keys nor aggregated are ignored.

        Raises:
            InvalidArgument: a column is missing; one has another type than before; or this writer is closed. Nothing
                was aggregated.
            UnsupportedType: these are no rows, or a column cannot be a key, or be aggregated so.
            StoreFull: there is no memory, and nothing that could be moved to disk. The aggregation fails.
            StoreUnavailable: the daemon cannot be reached. The aggregation fails.
        """
        table = to_table(rows)
        plan = BoundPlan(self._plan, table.schema)
        raw = self._aggregator(plan)
        for batch in table.to_batches():
            if batch.num_rows:
                keys = key_columns([batch.column(key) for key in plan.keys])
                self._failing(raw.append, keys, plan.values(batch))

    # --- internal

    def _aggregator(self, plan: BoundPlan) -> _core.PageAggregator:
        with self._opened():
            if self._bound is not None and self._bound.schema != plan.schema:
                raise InvalidArgument(
                    f"all rows of aggregation {self._name!r} must have the same columns: before, they were\n"
                    f"{self._bound.schema}\nbut now\n{plan.schema}"
                )
            if self._raw is None:
                self._raw = self._create(plan)
            self._bound = plan
            return self._raw

    def _create(self, plan: BoundPlan) -> _core.PageAggregator:
        layout = self._layout
        budget = int(self._store.status()["capacity_bytes"]) // _OPEN_SHARE // layout.writers
        return self._store._raw().page_aggregator(
            self._store._session_number,
            layout.set_handles(self._store),
            layout.partitions,
            layout.page_bytes,
            WAIT_SECONDS,
            self._prefix,
            plan.kinds,
            budget,
        )

    def _finish(self) -> Finished:
        rows = [0] * self._layout.partitions  # keys are counted when partial results are merged
        if self._raw is None or self._bound is None:
            return Finished(b"", rows, None)
        return Finished(self._raw.finish(), rows, self._bound.schema.serialize().to_pybytes())

    def _abandon(self) -> None:
        raw = getattr(self, "_raw", None)
        if raw is not None:
            raw.abandon()
