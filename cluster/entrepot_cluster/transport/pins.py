"""Large objects that a server has open, because peers read them in pieces."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from entrepot.errors import Timeout

from entrepot_cluster.transport.endpoints import ObjectSource, SourceObject


@dataclass(slots=True)
class _Entry:
    pinned: SourceObject
    nbytes: int
    readers: int = 0  # that are sending from it at this moment
    last_used: float = field(default_factory=time.monotonic)


class PinnedObjects:
    """Objects that are kept pinned between the requests for their pieces.

    An object is opened by the first request and closed when the peer says that it has everything, when it has not been
    read for a while, or when another one needs the room: a later request opens it again. Only those that are being sent
    from at this moment cannot be closed, so whoever waits for room waits for sends, which have time limits.

    Args:
        source: what opens them.
        capacity: the most bytes pinned at once; a single larger object is pinned alone.
        idle_seconds: after which an object that is not read is closed.
    """

    def __init__(self, source: ObjectSource, capacity: int, idle_seconds: float) -> None:
        self._source = source
        self._capacity = capacity
        self._idle_seconds = idle_seconds
        self._changed = threading.Condition()
        self._entries: OrderedDict[tuple[bytes, int], _Entry] = OrderedDict()  # least recent first; by _changed
        self._nbytes = 0  # pinned; guarded by _changed

    @contextmanager
    def reading(self, oid: bytes, generation: int, seconds: float) -> Iterator[SourceObject]:
        """Context in which the object stays open.

        Raises:
            Timeout: others have been sending from as many bytes as are allowed for ``seconds``.
            EntrepotError: it cannot be opened.
        """
        key = (oid, generation)
        entry = self._acquire(key)
        if entry is None:
            opened = self._source.open(oid, generation)
            try:
                entry = self._add(key, opened, seconds)
            except BaseException:
                opened.close()
                raise
        try:
            yield entry.pinned
        finally:
            with self._changed:
                entry.readers -= 1
                entry.last_used = time.monotonic()
                if self._entries.get(key) is not entry and not entry.readers:
                    self._close(entry)
                self._changed.notify_all()

    def release(self, oid: bytes, generation: int) -> None:
        """Close an object that its reader has finished with, as soon as nobody is sending from it."""
        with self._changed:
            entry = self._entries.pop((oid, generation), None)
            if entry is not None and not entry.readers:
                self._close(entry)

    def close_idle(self, older_than: float | None = None) -> None:
        """Close what has not been read for a while; default: for the time given to the constructor."""
        with self._changed:
            limit = time.monotonic() - (self._idle_seconds if older_than is None else older_than)
            for key, entry in list(self._entries.items()):
                if not entry.readers and entry.last_used <= limit:
                    del self._entries[key]
                    self._close(entry)

    @property
    def nbytes(self) -> int:
        """Bytes pinned at this moment."""
        with self._changed:
            return self._nbytes

    def _acquire(self, key: tuple[bytes, int]) -> _Entry | None:
        with self._changed:
            entry = self._entries.get(key)
            if entry is not None:
                entry.readers += 1
                self._entries.move_to_end(key)
            return entry

    def _add(self, key: tuple[bytes, int], opened: SourceObject, seconds: float) -> _Entry:
        nbytes = sum(buffer.nbytes for buffer in opened.buffers)
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._entries or self._has_room(nbytes), seconds):
                raise Timeout(
                    f"{self._nbytes} bytes are being sent, of at most {self._capacity}, and there was no room for "
                    f"{nbytes} more in {seconds:g} s"
                )
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(opened, nbytes)
                self._nbytes += nbytes
            else:  # another request for it was faster
                opened.close()
            entry.readers += 1
            return entry

    def _has_room(self, nbytes: int) -> bool:
        """Whether the bytes fit, once idle objects are closed. With _changed held."""
        for key, entry in list(self._entries.items()):
            if not self._nbytes or self._nbytes + nbytes <= self._capacity:
                break
            if not entry.readers:
                del self._entries[key]
                self._close(entry)
        return not self._nbytes or self._nbytes + nbytes <= self._capacity

    def _close(self, entry: _Entry) -> None:
        self._nbytes -= entry.nbytes
        self._changed.notify_all()
        entry.pinned.close()
