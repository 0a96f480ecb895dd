"""Files opened for writing: nobody sees them before they are complete.

States::

    open ──close──▶ complete ──commit──▶ committed      close() commits, unless a transaction is to do it
      └──discard, an exception in its block, garbage collection──▶ discarded
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from warnings import warn

from entrepot import raw_objects
from entrepot.errors import EntrepotError

from entrepot_io.filesystem import sealing
from entrepot_io.filesystem.contents import decoded
from entrepot_io.filesystem.failed_blocks import block_failed
from entrepot_io.filesystem.formats import Format, split
from entrepot_io.filesystem.os_errors import os_errors
from entrepot_io.filesystem.output import Output

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.raw_objects import RawObjectWriter
    from typing_extensions import Buffer

_LARGE_WRITE = 64 << 10  # from this size on, a write is a piece of its own
_PIECE_BYTES = 1 << 20  # smaller writes are collected into pieces of this size


class ObjectWriter(Output):
    """A file that becomes an object when it is closed.

    If its size is known in advance, what is written goes straight into shared memory. Otherwise the pieces are
    collected (``bytes`` by reference) and copied there once, on ``close``: the store cannot enlarge a blob, and only a
    file in one blob can be read as a whole without a copy. Not thread-safe.

    Args:
        fs, path: as fsspec's own files have them.
        store: its session, which stays open until the file is complete.
        name: of the object.
        start: what an appended file starts with.
        exclusive: whether the name has to be free when the file is committed.
        autocommit: whether ``close`` commits.
        decode: whether to store the table or array that the bytes hold, if the name's suffix says so.
        expected_size: how many bytes will probably be written; None: unknown.

    Raises:
        StoreFull: there is no room for a file of the expected size.
    """

    mode = "wb"

    def __init__(
        self,
        fs: Any,
        path: str,
        store: Store,
        name: str,
        *,
        start: memoryview | None = None,
        exclusive: bool = False,
        autocommit: bool = True,
        decode: bool = False,
        expected_size: int | None = None,
    ) -> None:
        self.fs = fs
        self.path = path
        self.autocommit = autocommit
        self.blocksize = fs.blocksize
        self._store = store
        self._name = name
        self._exclusive = exclusive
        self._decode = decode
        self._pieces: deque[bytes | bytearray | memoryview] = deque()
        self._collected = bytearray()
        self._size = 0
        self._discarded = True  # until there is something to discard
        # Complete, not committed: either a value, or bytes in shared memory that are not sealed.
        self._value: Any = None
        self._filled: RawObjectWriter | None = None
        # Memory of the expected size, as long as what is written fits; it becomes `_filled`.
        self._reserved: RawObjectWriter | None = None
        if (
            expected_size is not None
            and expected_size > raw_objects.SMALL_BYTES
            and start is None
            and store.durable is None
            and self._format() is None
        ):
            self._reserved = raw_objects.RawObjectWriter(store, [expected_size])
        if start is not None:  # it lies in the store, so nobody changes it
            self._pieces.append(start)
            self._size = start.nbytes
        self._discarded = False

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    def write(self, data: Buffer, /) -> int:
        if self.closed:
            raise ValueError(f"{self.path} is closed")
        if self._discarded:  # a text file flushes what it buffered
            return memoryview(data).nbytes
        return self._add(data)

    def _add(self, data: Buffer) -> int:
        view = memoryview(data)
        flat = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
        if self._reserved is not None:
            end = self._size + flat.nbytes
            if end <= self._reserved.buffers[0].nbytes:
                self._reserved.buffers[0][self._size : end] = flat
                self._size = end
                return flat.nbytes
            self._collect_reserved()
        if flat.nbytes >= _LARGE_WRITE:
            self._end_piece()
            self._pieces.append(flat if isinstance(view.obj, bytes) else bytes(flat))  # others may still change
        else:
            self._collected += flat
            if len(self._collected) >= _PIECE_BYTES:
                self._end_piece()
        self._size += flat.nbytes
        return flat.nbytes

    def _collect_reserved(self) -> None:
        """Go on as if the size had not been known: it was wrong."""
        if self._reserved is not None:
            self._pieces.append(bytes(self._reserved.buffers[0][: self._size]))
            self._reserved.drop()
            self._reserved = None

    def _format(self) -> Format | None:
        return split(self._name)[1] if self._decode else None

    def _end_piece(self) -> None:
        if self._collected:
            self._pieces.append(self._collected)
            self._collected = bytearray()

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Does nothing: an object is written as a whole."""

    def close(self) -> None:
        """Complete the file, and commit it unless a transaction does that.

        Raises:
            OSError: it cannot be stored; nothing is left of it then.
        """
        if self.closed:
            return
        try:
            if block_failed():
                self.discard()
            if not self._discarded:
                with os_errors(self.path):
                    self._complete()
                    if self.autocommit:
                        self._commit()
        except BaseException:
            self.discard()
            raise
        finally:
            super().close()

    def _complete(self) -> None:
        if self._reserved is not None and self._size == self._reserved.buffers[0].nbytes:
            self._filled, self._reserved = self._reserved, None
            return
        self._collect_reserved()
        self._end_piece()
        wanted = self._format()
        if wanted is not None:
            self._value = decoded(b"".join(self._pieces), wanted, self.path)
            self._name = split(self._name)[0]
        elif self._size <= raw_objects.SMALL_BYTES or self._store.durable is not None:
            self._value = b"".join(self._pieces)
        else:
            self._filled = raw_objects.RawObjectWriter(self._store, [self._size])
            (target,) = self._filled.buffers
            position = 0
            while self._pieces:
                piece = self._pieces.popleft()
                target[position : position + len(piece)] = piece
                position += len(piece)
        self._pieces.clear()

    def commit(self) -> None:
        """Bind the name to what was written; called at the end of a transaction.

        Raises:
            OSError: it cannot be stored; nothing is left of it then.
        """
        if not self.closed:
            self.autocommit = True
            self.close()
        elif self._value is not None or self._filled is not None:
            with os_errors(self.path):
                self._commit()

    def _commit(self) -> None:
        filled, value = self._filled, self._value
        self._filled = self._value = None
        if filled is not None:
            with filled:  # dropped if it is not sealed
                sealing.put_filled(self._store, self._name, filled, exclusive=self._exclusive)
        else:
            sealing.put_value(self._store, self._name, value, exclusive=self._exclusive)

    def discard(self) -> None:
        """Give up what was written, unless it is committed. Idempotent."""
        self._discarded = True
        self._pieces.clear()
        self._collected = bytearray()
        self._value = None
        for unsealed in (self._filled, self._reserved):
            if unsealed is not None:
                unsealed.drop()
        self._filled = self._reserved = None

    def abandon(self) -> None:
        if not self._discarded:
            self.discard()
            warn(f"{self.path} was never closed, so it was not stored", ResourceWarning, stacklevel=3, source=self)

    def __del__(self) -> None:
        with suppress(AttributeError, EntrepotError):  # the first: __init__ failed
            if not self.closed:
                self.abandon()
                super().close()

    def __repr__(self) -> str:
        return f"<entrepot file {self.path!r}, being written, {self._size} bytes>"
