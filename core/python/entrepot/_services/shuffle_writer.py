"""Writing to a shuffle; see :meth:`Shuffle.writer`.

States::

    open ──close, end of the block──▶ closed: everything it wrote is in the shuffle
      └──abort, an exception in the block, an append that failed, end of the process──▶ failed, and so is the shuffle
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from entrepot import _core
from entrepot._services.page import ALIGNED
from entrepot._services.partitioning import given_numbers, partition_numbers, record_buffers
from entrepot._services.service_writer import WAIT_SECONDS, Finished, ServiceWriter
from entrepot._services.tables import to_table
from entrepot.errors import InvalidArgument, UnsupportedType

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from entrepot._services.manifest import WriterSlots
    from entrepot._services.shuffle_layout import ShuffleLayout
    from entrepot._services.store_access import ServiceStore
    from entrepot._streams.writer import StreamWriter

_PIECE_BYTES = 128 << 10  # rows of a partition are gathered until they have so many
_GATHERED_BYTES = 32 << 20  # in all partitions, for each thread


class ShuffleWriter(ServiceWriter):
    """One process's end of a shuffle. Its threads may append at the same time, each to pages of its own part.

    It belongs to the process that opened it: a forked child has to open its own.

    >>> import entrepot
    >>> import pyarrow as pa
    >>> shuffle = entrepot.connect().shuffle("by-city", 2, writers=1)
    >>> with shuffle.writer() as writer:
    ...     writer.append(pa.table({"city": ["Bonn", "Rome"]}), by="city")
    >>> shuffle.discard()
    """

    def __init__(
        self, store: ServiceStore, name: str, layout: ShuffleLayout, slots: WriterSlots, stream: StreamWriter
    ) -> None:
        super().__init__(store, name, "shuffle", layout.writers, slots, stream)
        self._layout = layout
        self._threads: list[_ThreadState] = []  # guarded by _lock
        self._local = threading.local()
        self._schema: pa.Schema | None = None  # guarded by _lock
        self._raw = store._raw().page_writer(
            store._session_number,
            layout.set_handles(store),
            layout.partitions,
            layout.page_bytes,
            layout.framing,
            layout.record_bytes,
            WAIT_SECONDS,
            self._prefix,
        )

    def append(self, rows: Any, *, by: str | Sequence[str] | None = None, partitions: Any = None) -> None:
        """Append the rows of a table, each to its partition.

        Args:
            rows: a ``pyarrow.RecordBatch`` or ``pyarrow.Table``, or anything else with the Arrow C stream interface.
            by: key column, or columns: rows with equal keys go to the same partition.
            partitions: instead, the partition's number of each row.

        Raises:
            InvalidArgument: neither or both are given; a number is out of range; there is no such column; other columns
                than before; the shuffle is one of records; or this writer is closed. Nothing was appended.
            UnsupportedType: these are no rows, or a key column has lists, structs or the like.
            StoreFull: there is no memory, and nothing that could be moved to disk. The shuffle fails.
            StoreUnavailable: the daemon cannot be reached. The shuffle fails.
        """
        table = to_table(rows)
        if self._layout.framing != ALIGNED:
            raise InvalidArgument(f"shuffle {self._name!r} is one of records: append them with append_records()")
        if (by is None) == (partitions is None):
            raise InvalidArgument(
                "pass either by=, the key columns, or partitions=, the number of each row's partition"
            )
        numbers = None if partitions is None else given_numbers(partitions, table.num_rows, self._layout.partitions)
        keys = [by] if isinstance(by, str) else list(by or ())
        for key in keys:
            if table.schema.get_field_index(key) < 0:
                raise InvalidArgument(f"there is no column {key!r}, or several: the columns are {table.column_names}")
        if by is not None and not keys:
            raise InvalidArgument("by= names no column")
        self._check_schema(table.schema)
        state, first = self._state(), 0
        for batch in table.to_batches():
            rows_of_batch = batch.num_rows
            if numbers is None:
                of_batch = partition_numbers([batch.column(key) for key in keys], self._layout.partitions)
            else:
                of_batch = numbers[first : first + rows_of_batch]
            first += rows_of_batch
            self._failing(state.append_batch, batch, of_batch)

    def append_records(self, records: Any, partitions: Any) -> None:
        """Append records, each to its partition.

        Args:
            records: an Arrow array of bytes or text, or a sequence of bytes. With ``record_bytes``: an array of any
                element type, whose rows along its first axis have that length.
            partitions: the partition's number of each record.

        Raises:
            InvalidArgument: a number is out of range; a record has another length, or is null; the shuffle is one of
                tables; or this writer is closed. Nothing was appended.
            StoreFull, StoreUnavailable: as :meth:`append`.
        """
        if self._layout.framing == ALIGNED:
            raise InvalidArgument(f"shuffle {self._name!r} is one of tables: append rows with append()")
        data, width, offsets, offset_bytes, count = record_buffers(records, self._layout.record_bytes)
        numbers = given_numbers(partitions, count, self._layout.partitions)
        if count:
            state = self._state()
            self._failing(state.appender.append_many, numbers, data, width, offsets, offset_bytes)
            state.count(numbers)

    # --- internal

    def _finish(self) -> Finished:
        for state in self._threads:
            state.flush()
        pages = self._raw.finish()
        rows = [sum(counts) for counts in zip(*(state.rows for state in self._threads), strict=True)]
        schema = self._schema.serialize().to_pybytes() if self._schema is not None else None
        return Finished(pages, rows or [0] * self._layout.partitions, schema)

    def _abandon(self) -> None:
        if hasattr(self, "_raw"):
            self._raw.abandon()

    def _state(self) -> _ThreadState:
        with self._opened():
            state: _ThreadState | None = getattr(self._local, "state", None)
            if state is None:
                state = self._local.state = _ThreadState(self._raw.appender(), self._layout.partitions)
                self._threads.append(state)
        return state

    def _check_schema(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        bare = schema.remove_metadata()
        with self._lock:
            if self._schema is None:
                try:
                    bare.empty_table().take(pa.array([], pa.int64()))
                except pa.ArrowNotImplementedError as error:
                    raise UnsupportedType(f"Arrow cannot gather rows of these columns: {error}") from error
                self._schema = bare
            elif self._schema != bare:
                raise InvalidArgument(
                    f"all rows of shuffle {self._name!r} must have the same columns: before, they were\n"
                    f"{self._schema}\nbut now\n{bare}"
                )


class _ThreadState:
    """What one thread has appended: small pieces of tables are gathered until they are worth a record of their own.

    Used by its thread, and by whoever closes the writer.
    """

    def __init__(self, appender: _core.Appender, partitions: int) -> None:
        self.appender = appender
        self.rows = [0] * partitions
        self._pieces: dict[int, list[pa.RecordBatch]] = {}
        self._bytes: dict[int, int] = {}
        self._gathered = 0  # bytes of the batches of which the pieces are slices

    def count(self, numbers: Any) -> None:
        import numpy as np

        counts = np.bincount(numbers, minlength=len(self.rows))
        self.rows = [before + int(more) for before, more in zip(self.rows, counts, strict=True)]

    def append_batch(self, batch: pa.RecordBatch, numbers: Any) -> None:
        import pyarrow as pa

        if not batch.num_rows:
            return
        partitions = len(self.rows)
        order, starts = _core.partition_order(numbers, partitions)
        together = batch.take(pa.Array.from_buffers(pa.int64(), batch.num_rows, [None, pa.py_buffer(order)]))
        self._gathered += together.nbytes
        for partition in range(partitions):
            first, end = starts[partition], starts[partition + 1]
            if first == end:
                continue
            piece = together.slice(first, end - first)
            self.rows[partition] += end - first
            self._pieces.setdefault(partition, []).append(piece)
            nbytes = self._bytes.get(partition, 0) + piece.nbytes
            self._bytes[partition] = nbytes
            if nbytes >= _PIECE_BYTES:
                self._write(partition)
        if self._gathered >= _GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        for partition in list(self._pieces):
            self._write(partition)
        self._gathered = 0

    def _write(self, partition: int) -> None:
        import pyarrow as pa

        pieces = self._pieces.pop(partition)
        del self._bytes[partition]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, pieces[0].schema) as stream:
            for piece in _joined(pieces):
                stream.write_batch(piece)
        self.appender.append(partition, sink.getvalue())


def _joined(pieces: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the pieces as one, or as they are if their type does not allow that: dictionaries that are nested, say."""
    import pyarrow as pa

    if len(pieces) == 1:
        return pieces
    try:
        joined: list[pa.RecordBatch] = pa.Table.from_batches(pieces).unify_dictionaries().combine_chunks().to_batches()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return pieces
    return joined
