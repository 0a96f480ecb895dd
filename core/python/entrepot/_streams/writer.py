"""The writing end of a stream. See ``Stream.writer``."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from entrepot import _core
from entrepot._client.arguments import timeout_seconds
from entrepot._client.writer_context import WriterContext
from entrepot._streams.stream_end import checked_number
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._collections.builder import CollectionBuilder
    from entrepot._streams.store_access import StreamStore

_UNKNOWN = bytes(20)  # an ID
_PUT_WAIT_SECONDS = 30.0  # for memory, if there is no timeout; as for Store.put


class StreamWriter(WriterContext):
    """One writer of a stream. Created by :meth:`Stream.writer`. Threads may share it; they take turns.

    States::

        open ──close, end of the block──▶ closed: it has written everything
          └──abort, an exception in the block, last reference dropped, end of the process──▶ aborted: the stream fails

    It belongs to the process that opened it: a forked child has to open its own.

    >>> import entrepot
    >>> stream = entrepot.connect().stream("squares", replace=True)
    >>> with stream.writer() as writer:  # an exception in the block fails the stream
    ...     for number in range(3):
    ...         oid = writer.put(number**2)
    >>> stream.remove()
    """

    def __init__(self, store: StreamStore, name: str, stream: int, *, keep: bool) -> None:
        self._store = store
        self._name = name
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._members: CollectionBuilder | None = store.collection(name) if keep else None  # guarded by _lock
        self._is_unanswered = False  # guarded by _lock; whether a put that failed may have stored a member, or may yet
        self._client = store._raw()  # to abort with, also when the store was closed
        # The next chunk's ID, guarded by _lock. The daemon deletes the object if this process ends in between.
        self._next = ObjectID.random()
        announced = _UNKNOWN if keep else self._next.binary
        self._number: int | None = self._client.open_stream_writer(stream, announced)  # None: not open any more

    def put(self, value: Any, *, timeout: float | None = None) -> ObjectID:
        """Append a value to the stream, waiting until it has room.

        The value is put as by :meth:`Store.put`, so what lies in the store already is referenced or sealed in place,
        and then belongs to the stream, which deletes it once every group has consumed it. While a put waits for room,
        its value is in the store already: each writer holds one chunk beside those that count for the capacity.

        Args:
            value: as for ``Store.put``.
            timeout: seconds to wait for room in the stream, and the same for memory; None: no limit for room, 30 s for
                memory. 0: do not wait.

        Returns:
            The chunk's ID. Only a stream that keeps its chunks guarantees that it leads anywhere.

        Raises:
            Timeout: the stream had no room in time. The value was not appended. Or the daemon did not respond: then the
                message says so if the value may have been appended. A stream that keeps its chunks may have got the
                value as a member that is not in the stream; the next put, or ``close``, deletes it.
            StreamFailed: another writer died or gave up, or the stream was removed or replaced.
            StreamLost: the daemon was restarted.
            InvalidArgument: this writer was closed, or opened before a fork.
            StoreFull, UnsupportedType, StoreUnavailable: as ``Store.put``. Nothing was appended.
        """
        wait = timeout_seconds(timeout)
        memory_wait = _PUT_WAIT_SECONDS if timeout is None else wait
        self._checked_number()  # before the lock, which a thread of the parent may have held during a fork
        with self._lock:
            number, raw = self._checked_number(), self._store._raw()
            if self._members is not None:
                return self._put_member(self._members, value, wait)
            oid, self._next = self._next, ObjectID.random()
            item = self._new_item(value, oid)
            raw.put_chunk(number, self._next.binary, item, memory_wait, wait)
        return oid

    def _new_item(self, value: Any, oid: ObjectID) -> _core.Item:
        return self._store._item(value, oid, True)

    def _put_member(self, members: CollectionBuilder, value: Any, wait: float) -> ObjectID:
        with _core.RequestDeadline(wait):
            self._delete_unanswered(members)
            self._is_unanswered = True
            oid = members.member_id(members.append(value))
            self._is_unanswered = False
        try:
            self._client.append_chunk(self._checked_number(), oid.binary, _UNKNOWN, wait)
        except BaseException:
            self._members = self._store.collection(self._name)  # the index that was taken is free again
            raise
        return oid

    def _delete_unanswered(self, members: CollectionBuilder) -> None:
        if self._is_unanswered:
            members.delete_unanswered()
            self._is_unanswered = False

    def close(self) -> None:
        """Say that this writer has written everything. When all have, the stream has ended. Closing twice is harmless.

        Raises:
            StreamFailed, StreamLost: the stream has failed, so readers do not get everything.
            InvalidArgument: this writer was opened before a fork.
            StoreUnavailable: the daemon cannot be reached.
        """
        if self._number is None:
            return
        self._checked_number()
        with self._lock:
            if self._members is not None:
                self._delete_unanswered(self._members)
            number, self._number = self._checked_number(), None
            self._store._raw().close_stream_writer(number)

    def abort(self, reason: str = "it was aborted") -> None:
        """Give up: the stream fails, and its readers and other writers get ``StreamFailed`` with this reason.

        Harmless if this writer was closed or aborted before.
        """
        number, self._number = self._number, None
        if number is not None and self._pid == os.getpid():
            self._client.abort_stream_writer(number, str(reason))

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted."""
        return self._number is None

    def _checked_number(self) -> int:
        return checked_number(self._number, self._pid, f"writer of stream {self._name!r}")

    def __del__(self) -> None:
        if getattr(self, "_number", None) is not None:
            self.abort("it was dropped without close()")

    def __repr__(self) -> str:
        return f"<entrepot.StreamWriter of {self._name!r}{' (closed)' if self.closed else ''}>"
