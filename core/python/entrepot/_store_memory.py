"""Where objects are: in memory or on disk. What users may say about it."""

from __future__ import annotations

from types import TracebackType

from entrepot import _core
from entrepot._arguments import AnyID, seconds, to_id
from entrepot.ids import ObjectID


class Pin:
    """Keeps an object in memory until it is let go; a context manager. Made by :meth:`Store.pin`.

    Values that were got do the same as long as they live; a pin does it without a value. It ends with the process.
    """

    def __init__(self, oid: ObjectID, held: _core.Object) -> None:
        self._held: _core.Object | None = held
        self.id = oid

    def unpin(self) -> None:
        """Let it go; once is enough."""
        self._held = None

    @property
    def pinned(self) -> bool:
        """Whether it still holds."""
        return self._held is not None

    def __enter__(self) -> Pin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unpin()

    def __repr__(self) -> str:
        return f"Pin({str(self.id)!r}, pinned={self.pinned})"


class MemoryMethods:
    """The part of :class:`Store` that moves objects between memory and disk."""

    def _raw(self) -> _core.Client:
        raise NotImplementedError

    def pin(self, oid: AnyID, *, timeout: float | None = 0) -> Pin:
        """Bring an object to memory if it is not there, and keep it there.

            with store.pin(oid):
                ...                      # gets of it cost no disk

        Args:
            oid: the object's ID.
            timeout: seconds to wait for it to be sealed, as for ``get``.

        Raises:
            ObjectNotFound, Timeout, ObjectLost: as ``get``.
            StoreFull: there is no room to bring it back.
        """
        wanted = to_id(oid)
        return Pin(wanted, self._raw().get(wanted.binary, seconds(timeout)))

    def evict(self, *oids: AnyID) -> None:
        """Move objects out of memory; a later get brings them back.

        What has no copy on disk yet is written first, in the background, and stays readable meanwhile. What a process
        pins stays in memory, and so does a value of 16 KiB or less, which lives in the store's records.

        Raises:
            ObjectNotFound: one of them is not in the store; the others go all the same.
            InvalidArgument: the store has no folder to spill to.
        """
        self._raw().evict([to_id(oid).binary for oid in oids])

    def prefetch(self, *oids: AnyID) -> None:
        """Begin to bring objects back from disk, and do not wait for it; what is in memory or unknown is ignored."""
        self._raw().load([to_id(oid).binary for oid in oids])
