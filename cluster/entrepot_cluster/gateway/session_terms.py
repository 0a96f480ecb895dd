"""How long the store's sessions live, and how many copies of their objects they ask for."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from entrepot import inventory
from entrepot.cluster_sessions import cluster_session
from entrepot.errors import CorruptData

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.cluster_sessions import ClusterSession

_FRESH_SECONDS = 1.0  # a time to live is changed by hand, if ever


class SessionTerms:
    """Asks for the terms of sessions. Thread-safe.

    Args:
        store: a connection to the store, in any session.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._ttls: dict[tuple[str, str], int] = {}  # guarded by _lock
        self._asked_at = -_FRESH_SECONDS  # when the daemon was asked for them; guarded by _lock

    def declaration(self, scope: str, session: str) -> ClusterSession | None:
        """Return what was declared for a session; None: it is no cluster session. Asks nobody."""
        try:
            return cluster_session(self._store._client, scope, session)  # pyright: ignore[reportPrivateUsage]
        except CorruptData:
            return None  # written by something else: not a declaration

    def replicas(self, scope: str, session: str) -> int:
        """How many stores are to have each object of a session."""
        declared = self.declaration(scope, session)
        return 1 if declared is None else declared.replicas

    def ttl_seconds(self, scope: str, session: str) -> int:
        """How long a session lives after its last use; 0: without end, or it is not there any more.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._asked_at >= _FRESH_SECONDS or (scope, session) not in self._ttls:
                self._ttls = {(info.scope, info.session): info.ttl_seconds for info in inventory.sessions(self._store)}
                self._asked_at = now
            return self._ttls.get((scope, session), 0)
