"""Connections to the store's sessions, for what is written and deleted there."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import entrepot

if TYPE_CHECKING:
    from entrepot import Store

MAX_OPEN = 64
IDLE_SECONDS = 30.0  # an open session does not expire, so those that were not used for so long are closed


class SessionStores:
    """Stores by scope and session, the recently used ones kept open. Thread-safe.

    Args:
        address: of the store.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        # With the time of the last use, the oldest first; guarded by _lock
        self._stores: OrderedDict[tuple[str, str], tuple[Store, float]] = OrderedDict()

    def get(self, scope: str, session: str) -> Store:
        """Return a store whose session is this one, which is created if it does not exist.

        Whoever uses it keeps it open: it closes itself with its last reference.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        key = (scope, session)
        with self._lock:
            opened = self._stores.get(key)
            if opened is not None:
                self._use(key, opened[0])
                return opened[0]
        store = entrepot.connect(self._address, scope=scope, session=session, durable=False)
        with self._lock:
            kept, _ = self._stores.get(key, (store, 0.0))
            self._use(key, kept)
            while len(self._stores) > MAX_OPEN:
                self._stores.popitem(last=False)
        return kept

    def lengthen(self, scope: str, session: str, ttl_seconds: int) -> None:
        """Let a session live at least so long after its last use; one that does not exist is created.

        Args:
            scope, session: which session. The scope's own, ``""``, never expires.
            ttl_seconds: 0: without end.
        """
        if not session:
            return
        own = self.get(scope, "")
        existing = next((info for info in own.sessions() if info.session == session), None)
        if existing is None or _is_longer(ttl_seconds, existing.ttl_seconds):
            own.session(session, ttl=ttl_seconds).close()

    def close_idle(self) -> None:
        """Drop connections that were not used for a while."""
        before = time.monotonic() - IDLE_SECONDS
        with self._lock:
            for key in [key for key, (_, used_at) in self._stores.items() if used_at < before]:
                del self._stores[key]

    def _use(self, key: tuple[str, str], store: Store) -> None:
        self._stores[key] = (store, time.monotonic())
        self._stores.move_to_end(key)

    def forget_all(self) -> None:
        """Drop all connections."""
        with self._lock:
            self._stores.clear()


def _is_longer(ttl_seconds: int, than: int) -> bool:
    return than != 0 and (ttl_seconds == 0 or ttl_seconds > than)
