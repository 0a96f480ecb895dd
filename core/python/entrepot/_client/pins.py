"""Pinning, evicting and prefetching: whether objects are in memory or on disk."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from entrepot import _core
from entrepot._client import gateway_calls
from entrepot._client.arguments import AnyID, timeout_seconds, to_id
from entrepot._client.session import Session
from entrepot.errors import ObjectNotFound
from entrepot.ids import ObjectID

PREFETCH_IDS = 10_000  # in one call to the gateway


class Pin:
    """Keeps an object in memory until released; a context manager. Created by :meth:`Store.pin`.

    A value that was read does the same while it lives; a pin does it without one. It ends with the process.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> oid = store.put(bytes(100_000))
    >>> with store.pin(oid):
    ...     store.info(oid).pins
    1
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


class Residency:
    """Moves the objects of a store between memory and disk; see the methods of ``Store`` of the same names."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def pin(self, oid: AnyID, timeout: float | None) -> Pin:
        object_id = to_id(oid)
        raw = self._session.raw()
        try:
            return Pin(object_id, raw.get(object_id.binary, timeout_seconds(timeout), remote=True))
        except ObjectNotFound:
            raw.refuse_lost([object_id.binary])
            raise

    def evict(self, oids: Sequence[AnyID]) -> None:
        self._session.raw().evict([to_id(oid).binary for oid in oids])

    def prefetch(self, oids: Sequence[AnyID]) -> None:
        raw = self._session.raw()
        ids = [to_id(oid).binary for oid in oids]
        raw.load(ids)
        missing = [oid for oid in ids if raw.generation_of(oid) is None]
        for begin in range(0, len(missing), PREFETCH_IDS):
            gateway_calls.prefetch(raw, missing[begin : begin + PREFETCH_IDS])
