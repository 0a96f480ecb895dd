"""Small batches that are gathered, so that a table of many does not consist of as many chunks."""

from __future__ import annotations

from typing import Any

_STREAM_BYTES = 4 << 20  # a batch of one row takes a kilobyte here, most of it headers: combined from time to time


class SmallBatches:
    """Copies of batches, in memory of the process, in order. Not thread-safe.

    They are written to an Arrow stream, which copies any type, dictionaries included, and only the rows that a slice
    shows. The stream is combined into one batch whenever it has grown to 4 MiB.

    Args:
        schema: of all batches.

    Attributes:
        nbytes: of their values, roughly.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._sink: Any = None
        self._writer: Any = None
        self._combined: list[Any] = []
        self.nbytes = 0

    def add(self, batch: Any, nbytes: int) -> None:
        """Copy a batch of ``nbytes``."""
        import pyarrow as pa

        if self._writer is None:
            self._sink = pa.BufferOutputStream()
            self._writer = pa.ipc.new_stream(self._sink, self._schema)
        self._writer.write_batch(_without_hidden_text(batch))
        self.nbytes += nbytes
        if self._sink.tell() >= _STREAM_BYTES:
            self._close_stream()

    def batches(self) -> list[Any]:
        """Return the batches combined: none, one, or several if Arrow cannot combine their dictionaries."""
        if self._writer is not None:
            self._close_stream()
        self._combined = combine(self._combined)
        return list(self._combined)

    def remove_first(self) -> None:
        """Remove the first of :meth:`batches`, which is stored elsewhere now."""
        del self._combined[0]
        self.nbytes = sum(batch.nbytes for batch in self._combined)

    def _close_stream(self) -> None:
        import pyarrow as pa

        self._writer.close()
        sink, self._sink, self._writer = self._sink, None, None
        with pa.ipc.open_stream(sink.getvalue()) as reader:
            self._combined += combine(list(reader))


def combine(batches: list[Any]) -> list[Any]:
    """Combine as many neighbouring batches as can be; the result has the same rows in the same order."""
    import pyarrow as pa

    if len(batches) < 2:
        return batches
    try:
        return [pa.concat_batches(batches)]
    except pa.ArrowInvalid:  # the dictionaries have more values than the type of the indices can count
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
