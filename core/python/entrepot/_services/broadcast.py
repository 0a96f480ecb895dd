"""Broadcasts: one value that all processes of a host read where it lies, until as many as were expected are done.

States::

    (none) ──store.broadcast(name, value)──▶ published ──the last of its readers closes, discard──▶ (gone)

A reader that dies is not counted: whoever does its work again opens the broadcast with the same reader's name. Views of
the value stay valid after it is gone.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

from entrepot._client.arguments import checked_name
from entrepot._services.shuffle_layout import checked_layout_number
from entrepot.errors import CorruptData, ObjectNotFound, Timeout
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from typing_extensions import Self

    from entrepot._services.store_access import ServiceStore

_SET = "broadcast"
_MAX_READERS = (1 << 31) - 1


class Broadcast:
    """A broadcast, as this process has it open. Created by :meth:`Store.broadcast`; a context manager that closes it.

    Attributes:
        name: its name within the session.
        id: the object that it is.
        value: what was published, read-only and without a copy, until this is closed.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> published = store.broadcast("weights", [0.5, 0.5], readers=1)
    >>> with store.broadcast("weights", reader="worker-1", timeout=60) as weights:
    ...     weights.value
    [0.5, 0.5]
    """

    def __init__(self, store: ServiceStore, name: str, oid: ObjectID, reader: str | None) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._reader = reader  # guarded by _lock; None: it does not count, or was counted
        self.name = name
        self.id = oid
        contents = store.get(oid)
        if not isinstance(contents, dict) or contents.keys() != {"readers", "value"}:
            raise CorruptData(f"object {oid} of name {name!r} is no broadcast")
        if contents["readers"] is None:
            self._reader = None
        self.value: Any = contents["value"]

    def close(self) -> None:
        """Report that this reader is done. The last one deletes the value. Closing twice is harmless.

        Raises:
            StoreUnavailable: the daemon cannot be reached; close again.
        """
        with self._lock:
            self.value = None
            if self._reader is None:
                return
            try:
                remaining = self._store.consumed(self.id, self._reader)
            except ObjectNotFound:
                remaining = 1  # it was discarded
            self._reader = None
            if not remaining:
                self._store.delete(self.id)

    def discard(self) -> None:
        """Delete the value, whoever is reading it."""
        self._store.delete(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()  # otherwise its work will be done again

    def __repr__(self) -> str:
        return f"<entrepot.Broadcast {self.name!r}>"


def publish(store: ServiceStore, name: str, value: Any, readers: SupportsIndex | None) -> Broadcast:
    """Put a value for all processes; see :meth:`Store.broadcast`."""
    expected = None if readers is None else checked_layout_number("the number of readers", readers, _MAX_READERS)
    values = store.locality_set(_SET, reading="random", writing="once", priority=1)
    bound = f"{_SET}:{checked_name(name)}"
    contents = {"readers": expected, "value": value}
    oid = store.put(contents, name=bound, locality_set=values, consumers=expected)
    return Broadcast(store, name, oid, None)


def receive(store: ServiceStore, name: str, reader: str | None, timeout: float | None) -> Broadcast:
    """Wait for a value; see :meth:`Store.broadcast`."""
    try:
        oid = store.resolve(f"{_SET}:{checked_name(name)}", timeout=timeout)
    except Timeout:
        raise Timeout(
            f"broadcast {name!r} was not published in time, or all of its readers are done: publish it with "
            "store.broadcast(name, value)"
        ) from None
    own = f"{os.getpid()}-{os.urandom(8).hex()}" if reader is None else checked_name(reader)
    return Broadcast(store, name, oid, own)
