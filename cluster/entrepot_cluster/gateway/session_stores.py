"""Connections to the store's sessions, for what is written and deleted there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import entrepot

if TYPE_CHECKING:
    from entrepot import Store

MAX_OPEN = 64  # an open session does not expire, so those that were not used lately are closed


class SessionStores:
    """Stores by scope and session, the recently used ones kept open. Thread-safe.

    Args:
        address: of the store.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._stores: OrderedDict[tuple[str, str], Store] = OrderedDict()  # oldest use first; guarded by _lock

    def get(self, scope: str, session: str) -> Store:
        """Return a store whose session is this one, which is created if it does not exist.

        Whoever uses it keeps it open: it closes itself with its last reference.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        key = (scope, session)
        with self._lock:
            store = self._stores.get(key)
            if store is not None:
                self._stores.move_to_end(key)
                return store
        store = entrepot.connect(self._address, scope=scope, session=session, durable=False)
        with self._lock:
            kept = self._stores.setdefault(key, store)
            self._stores.move_to_end(key)
            while len(self._stores) > MAX_OPEN:
                self._stores.popitem(last=False)
        return kept

    def forget_all(self) -> None:
        """Drop all connections."""
        with self._lock:
            self._stores.clear()
