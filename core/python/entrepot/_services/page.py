"""Pages of records, as their readers see them; ``docs/formats/pages.md`` describes their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from entrepot import _core
from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

FIXED, COMPACT, ALIGNED = 0, 1, 2
"""How records follow each other: all of one length; after their lengths; after their lengths, at multiples of 8."""

_MAX_VIEWS_BYTES = (1 << 31) - 1  # an Arrow binary view has 32-bit offsets


class Page:
    """Records of one partition, in shared memory. Valid as long as anything that was read from it is.

    Attributes:
        partition: the partition's number.
        records: how many there are; of a shuffle of tables, the number of its pieces.
        view: its bytes.

    >>> import entrepot
    >>> shuffle = entrepot.connect().shuffle("words", 1, writers=1, record_bytes=3)
    >>> with shuffle.writer() as writer:
    ...     writer.append_records([b"one", b"two"], [0, 0])
    >>> [page.to_arrow().to_pylist() for page in shuffle.pages(0, timeout=60)]
    [[b'one', b'two']]
    >>> shuffle.discard()
    """

    __slots__ = ("_chunks", "_framing", "_record_bytes", "partition", "records", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.partition, self._framing, self._record_bytes, self.records, self._chunks = _core.read_page(view)

    @property
    def nbytes(self) -> int:
        """Length in bytes, with what describes the records."""
        return self.view.nbytes

    def to_numpy(self, dtype: Any) -> Iterator[np.ndarray[Any, Any]]:
        """Return the records of a shuffle with ``record_bytes``, as arrays that are views of the page.

        Raises:
            InvalidArgument: the records have no fixed length, or another one than the element type.
        """
        import numpy as np

        kind = np.dtype(dtype)
        if self._framing != FIXED or kind.itemsize != self._record_bytes:
            length = f"{self._record_bytes} bytes each" if self._framing == FIXED else "lengths of their own"
            raise InvalidArgument(f"the records have {length}, but {kind} has {kind.itemsize} bytes")
        for offset, nbytes, _ in self._chunks:
            yield np.frombuffer(self.view[offset : offset + nbytes], kind)

    def to_arrow(self) -> pa.Array:
        """Return the records as an array of type ``binary_view``, or ``binary`` of the fixed length for these.

        The bytes stay where they are, except those of records of a fixed length in a page of several parts.
        """
        import pyarrow as pa

        if self._framing == FIXED:
            kind = pa.binary(self._record_bytes)
            parts = [
                pa.Array.from_buffers(kind, records, [None, pa.py_buffer(self.view[offset : offset + nbytes])])
                for offset, nbytes, records in self._chunks
            ]
            return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        if self.nbytes > _MAX_VIEWS_BYTES:  # one very long record
            return pa.array([bytes(record) for record in self._records()], pa.large_binary())
        buffers = [None, pa.py_buffer(_core.page_views(self.view)), pa.py_buffer(self.view)]
        return pa.Array.from_buffers(pa.binary_view(), self.records, buffers)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the record batches of a shuffle of tables, whose columns are views of the page."""
        import pyarrow as pa

        if self._framing != ALIGNED:
            raise InvalidArgument("this page has records, not tables: read it with to_arrow() or to_numpy()")
        for record in self._records():
            yield from pa.ipc.open_stream(pa.py_buffer(record))

    def _records(self) -> Iterator[memoryview]:
        places = memoryview(_core.page_records(self.view)).cast("Q")
        for offset, length in zip(places[::2], places[1::2], strict=True):
            yield self.view[offset : offset + length]

    def __repr__(self) -> str:
        return f"<entrepot.Page of partition {self.partition}: {self.records} records, {self.nbytes} bytes>"
