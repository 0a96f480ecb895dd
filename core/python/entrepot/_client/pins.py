"""Pinning, evicting and prefetching: whether objects are in memory or on disk."""

from __future__ import annotations

from types import TracebackType

from entrepot import _core
from entrepot._client.arguments import AnyID, timeout_seconds, to_id
from entrepot.ids import ObjectID


class Pin:
    """Keeps an object in memory until released; a context manager. Created by :meth:`Store.pin`.

    A value that was read does the same while it lives; a pin does it without one. It ends with the process.
    """

    def __init__(self, oid: ObjectID, pinned_object: _core.Object) -> None:
        self._pinned_object: _core.Object | None = pinned_object
        self.id = oid

    def unpin(self) -> None:
        """Release the pin. Idempotent."""
        self._pinned_object = None

    @property
    def pinned(self) -> bool:
        """Whether the pin is still held."""
        return self._pinned_object is not None

    def __enter__(self) -> Pin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unpin()

    def __repr__(self) -> str:
        return f"Pin({str(self.id)!r}, pinned={self.pinned})"


class MemoryMethods:
    """Methods of :class:`Store` that move objects between memory and disk."""

    def _raw(self) -> _core.Client:
        raise NotImplementedError

    def pin(self, oid: AnyID, *, timeout: float | None = 0) -> Pin:
        """Load an object into memory if necessary, and keep it there.

            with store.pin(oid):
                ...                      # reading it needs no disk access

        Args:
            oid: the object's ID.
            timeout: seconds to wait for it to be sealed, as for ``get``.

        Raises:
            ObjectNotFound, Timeout, ObjectLost: as ``get``.
            StoreFull: not enough memory to reload it.
        """
        object_id = to_id(oid)
        return Pin(object_id, self._raw().get(object_id.binary, timeout_seconds(timeout)))

    def evict(self, *oids: AnyID) -> None:
        """Move objects out of memory; a later get reloads them.

        An object without a copy on disk is written first, in the background, and stays readable meanwhile. Objects
        pinned by any process stay in memory, as do values of 16 KiB or less, which live in the store's records.

        Raises:
            ObjectNotFound: one of them is not in the store; the others are evicted anyway.
            InvalidArgument: the store has no spill directory.
        """
        self._raw().evict([to_id(oid).binary for oid in oids])

    def prefetch(self, *oids: AnyID) -> None:
        """Start reloading objects from disk without waiting. Objects already in memory or unknown are ignored."""
        self._raw().load([to_id(oid).binary for oid in oids])
