"""Tables that grow by record batches; see ``Store.build_table``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from entrepot._builders.arrow_fields import check_column, check_names
from entrepot._builders.object_memory import ObjectMemory
from entrepot._builders.small_batches import SmallBatches, can_gather, shown_bytes
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._client.info import PutResult

MIN_CHUNK_BYTES = 1 << 20
# A chunk holds at least this part of the table before it, so that their number grows with the logarithm of its size: a
# table of a terabyte has up to 14 times as many buffers, which is less than the 32,768 parts that an object can have.
MAX_CHUNKS = 1024
MAX_BUFFERS = 2048


class UnsealedTable:
    """What the builders of tables have in common. A context manager: the end of the block seals the table, an exception
    discards it.

    Args:
        memory: where its parts go.
        schema: its ``pyarrow.Schema``.
        oid: its ID.

    Attributes:
        id: the object's ID.
        schema: as given.
        receipt: the result of sealing it; None until then.
    """

    receipt: PutResult | None

    def __init__(self, memory: ObjectMemory, schema: Any, oid: ObjectID) -> None:
        self._memory = memory
        self._lock = threading.Lock()  # makes appends and the seal one after another; not used in a forked child
        self.schema = schema
        self.id = oid
        self.receipt = None

    def __enter__(self) -> UnsealedTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._memory.open:
                self.seal()
        finally:
            self.drop()

    def seal(self) -> ObjectID:
        """Seal the table: make it immutable and visible, as one ``pyarrow.Table``.

        Raises:
            ObjectExists: its ID or name is taken by other content; everything that was built is discarded.
            StoreFull: not enough memory; the builder stays open.
            InvalidArgument: it is already sealed or discarded.
            NotSealed: this process is a fork of the one that created it.
            Timeout, StoreUnavailable: as ``Store.put``.
        """
        self._memory.check_usable()
        with self._lock:
            self._memory.check_usable()
            self.receipt = self._memory.seal(self._table())
            self._forget()
        return self.id

    def drop(self) -> None:
        """Return the memory without sealing. Idempotent; nothing happens in a forked child."""
        if self._memory.is_inherited:
            return
        self._memory.give_up()
        with self._lock:
            self._forget()

    def __del__(self) -> None:
        self.drop()

    def _table(self) -> Any:
        """Return the table, with what can be of it in the store's memory."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Drop what is of no use after the end; it may keep sealed objects pinned."""
        raise NotImplementedError


class _State(NamedTuple):
    """What has been appended: all of it changes by one assignment, so that Ctrl-C never leaves half of a change."""

    chunks: int  # that count, of TableBuilder._chunks
    nbytes: int  # of the chunks
    rows: int  # of the chunks
    small: SmallBatches  # what follows the chunks


class TableBuilder(UnsealedTable):
    """A table that grows by record batches; see ``Store.build_table``. Thread-safe: batches of several threads follow
    one another in any order.

    >>> import entrepot
    >>> import pyarrow as pa
    >>> store = entrepot.connect()
    >>> schema = pa.schema([("city", pa.string()), ("price", pa.float64())])
    >>> with store.build_table(schema) as sales:
    ...     for day in range(3):
    ...         sales.append(pa.record_batch([["Bonn", "Rome"], [day + 0.5, day + 1.0]], schema=schema))
    >>> store.get(sales.id).num_rows
    6
    """

    def __init__(self, memory: ObjectMemory, schema: Any, oid: ObjectID) -> None:
        super().__init__(memory, schema, oid)
        self._chunks: list[Any] = []  # guarded by _lock; record batches in the store's memory
        self._state = _State(0, 0, 0, SmallBatches(schema))  # written under _lock
        self._max_chunks = MAX_CHUNKS  # guarded by _lock; fewer for a table of many columns
        self._gathers = can_gather(schema)

    @property
    def num_rows(self) -> int:
        """Rows that have been appended."""
        state = self._state
        return state.rows + state.small.num_rows

    def __enter__(self) -> TableBuilder:
        return self

    def append(self, data: Any) -> None:
        """Append rows. They are copied, except for buffers that lie in sealed objects already; ``data`` can be freed.

        Args:
            data: a ``pyarrow.RecordBatch``, a ``pyarrow.Table``, or anything else with the Arrow C stream interface,
                such as a Polars ``DataFrame``. Its columns must have the names and types of the schema, in this order.

        Raises:
            InvalidArgument: it has other columns or other types, or nulls where the schema allows none, and nothing of
                it was appended; or the table is already sealed or discarded.
            StoreFull: not enough memory. Of data with several chunks, the first ones may have been appended: what
                remains is ``data[num_rows now - num_rows before:]``. The same after Ctrl-C.
            UnsupportedType: the schema cannot be serialized by Arrow, such as one with dictionaries of dictionaries.
            NotSealed: this process is a fork of the one that created the builder.
        """
        self._memory.check_usable()
        batches = list(self._checked_batches(data))
        with self._lock:
            self._memory.check_usable()
            for batch in batches:
                self._append(batch)

    def _checked_batches(self, data: Any) -> Iterator[Any]:
        import pyarrow as pa

        table, what = (data, "the batch") if isinstance(data, pa.RecordBatch) else (_table_of(data), "the table")
        check_names(what, table.schema.names, self.schema.names)
        for index, field in enumerate(self.schema):
            check_column(what, field, table.column(index))
        for batch in [table] if isinstance(table, pa.RecordBatch) else table.to_batches():
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema) if batch.num_columns else batch

    def _append(self, batch: Any) -> None:
        nbytes = shown_bytes(batch)
        buffers = sum(buffer is not None for column in batch.columns for buffer in column.buffers())
        self._max_chunks = max(1, min(self._max_chunks, MAX_BUFFERS // max(1, buffers)))
        chunk_bytes = max(MIN_CHUNK_BYTES, self._state.nbytes // self._max_chunks)  # grows with the table
        if max(nbytes, self._state.small.nbytes) >= chunk_bytes:
            self._store_small()
        state = self._state
        if nbytes >= chunk_bytes or not self._gathers:
            self._add_chunks([self._memory.store(batch)], nbytes, batch.num_rows, state.small)
        else:
            state.small.add(batch, nbytes)
            state.small.combine_if_large()

    def _store_small(self) -> None:
        small = self._state.small
        stored = small.store(self._memory.store)
        self._add_chunks(stored, sum(batch.nbytes for batch in stored), small.num_rows, SmallBatches(self.schema))

    def _add_chunks(self, chunks: list[Any], nbytes: int, rows: int, small: SmallBatches) -> None:
        state = self._state
        del self._chunks[state.chunks :]  # of a call that was interrupted here
        self._chunks += chunks
        self._state = _State(len(self._chunks), state.nbytes + nbytes, state.rows + rows, small)

    def _table(self) -> Any:
        import pyarrow as pa

        # What is left of small batches is copied by the seal.
        state = self._state
        return pa.Table.from_batches([*self._chunks[: state.chunks], *state.small.batches()], schema=self.schema)

    def _forget(self) -> None:
        self._chunks, self._state = [], _State(0, 0, self.num_rows, SmallBatches(self.schema))


def _table_of(data: Any) -> Any:
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    if not hasattr(data, "__arrow_c_stream__"):
        raise InvalidArgument(
            "only a pyarrow.RecordBatch, a pyarrow.Table or another table with the Arrow C stream interface can be "
            f"appended, but got a {type(data).__name__}"
        )
    return pa.table(data)
