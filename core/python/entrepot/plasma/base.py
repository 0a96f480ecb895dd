"""What a client of a store holds: its connection, its locks, how it ends."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from entrepot import _core
from entrepot._store.store import Store
from entrepot.errors import StoreUnavailable
from entrepot.plasma import creations, notifications
from entrepot.plasma.eviction import EvictionQueue
from entrepot.plasma.quota import Quota

Client = TypeVar("Client", bound="ClientBase")


class ClientBase:
    """The connection of a ``PlasmaClient``.

    open ──disconnect, last reference gone──▶ closed
    """

    _store: Store  # set by of_store, like the next five, and not again
    _name: str
    _address: str
    _session: int
    _allows_pickle: bool
    _get: Any  # the store's get; after disconnect, what refuses
    _lock: threading.Lock  # guards _queue and what _quota counts
    _queue: EvictionQueue
    _quota: Quota | None  # replaced in one step
    _subscription: notifications.Subscription | None  # replaced in one step
    _durations: dict[bytes, int]  # in seconds, of objects that took this client a second or more to write

    def __init__(self) -> None:
        raise TypeError("create a PlasmaClient with entrepot.plasma.connect()")

    @classmethod
    def of_store(cls: type[Client], store: Store, name: str) -> Client:
        """Return a client over a store, which it closes; ``name`` is what its user calls it."""
        client = cls.__new__(cls)
        client._store = store
        client._name = name
        client._address = store.address
        client._session = store._session_number  # pyright: ignore[reportPrivateUsage]
        client._allows_pickle = bool(store._allow_pickle)  # pyright: ignore[reportPrivateUsage]
        client._get = client._raw().get
        client._lock = threading.Lock()
        client._queue = EvictionQueue(client._raw(), client._session, client._address)
        client._quota = None
        client._subscription = None
        client._durations = {}
        _clients.add(client)
        return client

    def disconnect(self) -> None:
        """Close the connection and give up what was created and not sealed. Idempotent."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.end()
        creations.give_up(self._address, self)
        self._get = _refuse
        self._store.close()

    def __del__(self, _finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At interpreter exit, module globals may be gone already; the process's exit tells the store anyway.
        if hasattr(self, "_durations") and not _finalizing():  # it was opened
            creations.give_up(self._address, self)
            if self._subscription is not None:
                self._subscription.end()

    def __repr__(self) -> str:
        return f"<entrepot.plasma.PlasmaClient {self._address}>"

    def _raw(self) -> _core.Client:
        return self._store._raw()  # pyright: ignore[reportPrivateUsage]

    def _charge(self, binary: bytes, nbytes: int) -> None:
        quota = self._quota
        if quota is None:
            return
        raw = self._raw()
        with self._lock:
            quota.charge(
                binary,
                nbytes,
                lambda other: creations.exists(self._address, other) or raw.generation_of(other) is not None,
            )


# For forked children, in which a lock may be held by a thread that does not exist there.
_clients: weakref.WeakSet[ClientBase] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client._lock = threading.Lock()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork_in_child)


def _refuse(*_: object) -> Any:
    raise StoreUnavailable("this client was disconnected: connect again")
