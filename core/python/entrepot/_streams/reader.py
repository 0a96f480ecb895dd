"""The reading end of a stream. See ``Stream.reader``."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from entrepot import _core
from entrepot._client.arguments import copy_mode_number, timeout_seconds
from entrepot._codecs.encoding import decode_from
from entrepot._streams.stream_end import checked_number
from entrepot.errors import ObjectNotFound, StreamEnded
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._streams.store_access import StreamStore
    from entrepot.codec import CopyMode


class StreamReader:
    """One reader of a group. Created by :meth:`Stream.reader`. An iterator over the values; a context manager.

    It has at most one chunk in hand::

        none ──get, next──▶ in hand ──the next get, ack, end of the block──▶ consumed
                              └──close, an exception in the block, end of the process──▶ back to its group

    A chunk that goes back is given to the next reader of the group that asks. It belongs to the process that opened it,
    and is meant for one thread: threads that share one take turns, and each get reports the chunk before as consumed.

    Attributes:
        group: the group's name.
        missed: how many chunks had been consumed and deleted before the group came; 0 unless it was opened with
            ``late=True``.
        position: number of the latest chunk in the stream, from 0; None before the first.
        redelivered: whether the latest chunk had been given to a reader of this group before, which did not report it
            as consumed.

    >>> import entrepot
    >>> stream = entrepot.connect().stream("cubes", replace=True)
    >>> with stream.writer() as writer:
    ...     oid = writer.put(1)
    ...     oid = writer.put(8)
    >>> with stream.reader() as reader:
    ...     reader.get(timeout=10), reader.get(timeout=10)
    (1, 8)
    >>> stream.remove()
    """

    def __init__(self, store: StreamStore, stream: int, group: str, late: bool) -> None:
        self._store = store
        self._stream = stream
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._in_hand: int | None = None  # guarded by _lock; position of a chunk that was returned and not reported yet
        self.group = group
        self.position: int | None = None
        self.redelivered = False
        self._number: int | None = None
        self._client = store._raw()  # to close with, also when the store was closed
        self._number, self.missed = self._client.open_stream_reader(stream, group, late)

    def get(self, *, timeout: float | None = None, copy: CopyMode = "never") -> Any:
        """Return the next value, waiting for it; what was returned before counts as consumed from now on.

        Args:
            timeout: seconds to wait; None: no limit; 0: do not wait.
            copy: as for :meth:`Store.get`. With ``"never"`` the value is a view of the chunk, and stays valid after
                the stream has deleted it.

        Raises:
            StreamEnded: all writers have closed, and every chunk was consumed by this group. While another reader of
                the group has one in hand, get waits, because it may come back.
            Timeout: no chunk came in time. A later get continues.
            StreamFailed: a writer died or gave up, or the stream was removed or replaced.
            StreamLost: the daemon was restarted.
            InvalidArgument: this reader was closed, or opened before a fork.
            ObjectLost, StoreFull and others: as ``Store.get``. The chunk was not consumed: the next get tries again.
        """
        wait, mode = timeout_seconds(timeout), copy_mode_number(copy)
        self._checked_number()  # before the lock, which a thread of the parent may have held during a fork
        with self._lock:
            raw = self._store._raw()
            chunk = raw.next_chunk(self._checked_number(), self._in_hand, wait)
            if chunk is None:
                self._in_hand = None
                raise StreamEnded("the stream has ended: all its writers have closed, and all chunks were consumed")
            position, oid, redelivered, pinned_object = chunk
            if pinned_object is None:
                value = self._read(raw, oid, copy)
            else:
                value = decode_from(self._store, pinned_object, copy, mode)
            self._in_hand = self.position = position
            self.redelivered = redelivered
        return value

    def _read(self, raw: _core.Client, oid: bytes, copy: CopyMode) -> Any:
        """Get a chunk that is not in memory."""
        try:
            return self._store.get(ObjectID(oid), copy=copy)
        except ObjectNotFound:
            raw.stream_state(self._stream)  # if the stream failed just now, it deleted the chunk
            raise

    def ack(self) -> None:
        """Report what was returned last as consumed, without asking for more. Harmless if that was done.

        Raises:
            StreamFailed, StreamLost, StoreUnavailable: as ``get``.
            InvalidArgument: this reader was closed, or opened before a fork.
        """
        self._checked_number()
        with self._lock:
            number = self._checked_number()
            if self._in_hand is not None:
                self._store._raw().chunk_done(number, self._in_hand)
                self._in_hand = None

    def close(self) -> None:
        """Stop reading. What was returned last and not reported as consumed goes back to the group.

        Closing twice is harmless. If the daemon does not answer within a second, it closes it when it answers again.
        """
        number, self._number = self._number, None
        if number is not None and self._pid == os.getpid():
            self._client.close_stream_reader(number)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._number is None

    def _checked_number(self) -> int:
        return checked_number(self._number, self._pid, f"reader of group {self.group!r}")

    def __iter__(self) -> StreamReader:
        return self

    def __next__(self) -> Any:
        try:
            return self.get()
        except StreamEnded:
            raise StopIteration from None

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._number is not None:
                self.ack()
        finally:
            self.close()

    def __del__(self) -> None:
        if getattr(self, "_number", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"<entrepot.StreamReader of group {self.group!r}{' (closed)' if self.closed else ''}>"
