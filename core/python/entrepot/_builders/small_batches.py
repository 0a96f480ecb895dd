"""Small batches that are gathered, so that a table of many does not consist of as many chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

_STREAM_BYTES = 4 << 20  # a batch of one row takes a kilobyte here, most of it headers: combined from time to time


class SmallBatches:
    """Copies of batches, in memory of the process, in order. Not thread-safe.

    They are written to an Arrow stream, which copies any type, dictionaries included, and only the rows that a slice
    shows. The stream is combined into one batch whenever it has grown to 4 MiB.

    Any call may be interrupted (Ctrl-C) and the object used further: what a batch changes is recorded by one assignment
    at the end. What an interrupted call has written to the stream is not read.

    Args:
        schema: of all batches; see :func:`can_gather`.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._stream: _Stream | None = None
        self._recorded = _Recorded()

    @property
    def nbytes(self) -> int:
        """Bytes of their values, roughly."""
        return self._recorded.nbytes

    @property
    def num_rows(self) -> int:
        """Rows of all of them."""
        return self._recorded.rows

    def add(self, batch: Any, nbytes: int) -> None:
        """Copy a batch of ``nbytes``."""
        if self._stream is None or self._stream.batches != self._recorded.in_stream:  # the last call was interrupted
            self._close_stream()
            self._stream = _Stream(self._schema)
        self._stream.write(_without_hidden_text(batch))
        before = self._recorded
        self._recorded = before._replace(
            in_stream=before.in_stream + 1, nbytes=before.nbytes + nbytes, rows=before.rows + batch.num_rows
        )

    def combine_if_large(self) -> None:
        """Combine what was added, if it is much."""
        if self._stream is not None and self._stream.nbytes >= _STREAM_BYTES:
            self._close_stream()

    def batches(self) -> list[Any]:
        """Return the batches combined: none, one, or several if Arrow cannot combine their dictionaries."""
        self._close_stream()
        in_store, combined = self._recorded.in_store, self._recorded.combined
        combined = (*combined[:in_store], *combine(list(combined[in_store:])))
        self._recorded = self._recorded._replace(combined=combined)
        return list(combined)

    def store(self, store: Callable[[Any], Any]) -> list[Any]:
        """Return what ``store`` makes of :meth:`batches`. A call after one that failed goes on where that one ended."""
        batches = self.batches()
        for index in range(self._recorded.in_store, len(batches)):
            batches[index] = store(batches[index])
            self._recorded = self._recorded._replace(combined=tuple(batches), in_store=index + 1)
        return batches

    def _close_stream(self) -> None:
        stream, before = self._stream, self._recorded
        if stream is not None and before.in_stream != 0:
            added = combine(stream.read(before.in_stream))
            self._recorded = before._replace(in_stream=0, combined=(*before.combined, *added))
        self._stream = None


class _Recorded(NamedTuple):
    in_stream: int = 0  # batches
    combined: tuple[Any, ...] = ()  # batches before those
    in_store: int = 0  # how many of `combined` are stored
    nbytes: int = 0  # of all
    rows: int = 0  # of all


class _Stream:
    """Batches in the format of Arrow streams."""

    def __init__(self, schema: Any) -> None:
        import pyarrow as pa

        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self.batches = 0  # that were written, or perhaps were

    @property
    def nbytes(self) -> int:
        return 0 if self._sink.closed else int(self._sink.tell())

    def write(self, batch: Any) -> None:
        self.batches += 1
        self._writer.write_batch(batch)

    def read(self, count: int) -> list[Any]:
        """Return the first of its batches. Nothing can be written any more."""
        import pyarrow as pa

        if not self._sink.closed:  # by a call that was interrupted
            self._writer.close()
        with pa.ipc.open_stream(self._sink.getvalue()) as reader:
            return [reader.read_next_batch() for _ in range(count)]


def can_gather(schema: Any) -> bool:
    """Whether batches of this schema survive a stream, and can be combined: not with dictionaries of nested values."""
    return all(_can_gather(field.type) for field in schema)


def _can_gather(type_: Any) -> bool:
    import pyarrow as pa

    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if pa.types.is_dictionary(type_):
        value = type_.value_type
        return not (
            pa.types.is_nested(value) or pa.types.is_dictionary(value) or isinstance(value, pa.BaseExtensionType)
        )
    return all(_can_gather(type_.field(index).type) for index in range(type_.num_fields))


def combine(batches: list[Any]) -> list[Any]:
    """Combine as many neighbouring batches as can be; the result has the same rows in the same order."""
    import pyarrow as pa

    if len(batches) < 2:
        return batches
    try:
        return [pa.concat_batches(batches)]
    # Of dictionaries: more values than the type of the indices can count, or values that cannot be united.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        half = len(batches) // 2
        return [*combine(batches[:half]), *combine(batches[half:])]


def shown_bytes(batch: Any) -> int:
    """Return the size of a batch; of text views, only the text that they show counts."""
    return sum(_text_bytes(column) if _is_view(column.type) else column.nbytes for column in batch.columns)


def _text_bytes(views: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute

    if not len(views):
        return 0
    # A view consists of four words, of which the first is its length.
    words = pa.Array.from_buffers(pa.int32(), 4 * len(views), [None, views.buffers()[1].slice(16 * views.offset)])
    pc: Any = pyarrow.compute  # its functions are created at import
    lengths = pc.list_element(pa.FixedSizeListArray.from_arrays(words, 4), 0)
    return 16 * len(views) + int(pc.sum(lengths).as_py())


def _is_view(type_: Any) -> bool:
    """Whether this is a type of views of text or bytes."""
    import pyarrow as pa

    return bool(pa.types.is_string_view(type_) or pa.types.is_binary_view(type_))


def _without_hidden_text(batch: Any) -> Any:
    """Return the batch with views of only the text that they show; a stream would contain all."""
    import pyarrow as pa

    if not any(_is_view(column.type) for column in batch.columns):
        return batch
    columns = []
    for column in batch.columns:
        if _is_view(column.type):
            plain = pa.large_string() if pa.types.is_string_view(column.type) else pa.large_binary()
            column = column.cast(plain).cast(column.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
