"""The scopes and sessions of a store, as the file system's upper directories; and lookups in one of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from entrepot import inventory
from entrepot.errors import ObjectNotFound

from entrepot_io import connections
from entrepot_io.sessions import DEFAULT_TTL_SECONDS, SCOPE_SESSION

if TYPE_CHECKING:
    from entrepot import SessionInfo, Store

_SETTINGS = ("ENTREPOT_ADDRESS", "ENTREPOT_SCOPE", "ENTREPOT_SESSION", "ENTREPOT_CONFIG")


class Sessions:
    """The sessions of one store. Thread-safe; works after ``fork``.

    A session is open only while something is done with it or written to it, so that looking at files does not keep
    sessions alive in a process that runs for long.

    Args:
        address: of the store; None: the one that ``entrepot.connect`` finds.
        scope, session: what ``current`` stands for; None: as ``entrepot.connect`` finds them.
        ttl: time to live of sessions that are written to, in seconds.
    """

    def __init__(self, address: str | None, scope: str | None, session: str | None, ttl: float) -> None:
        self._address = address
        self._scope = scope
        self._session = session
        self._ttl = ttl
        # The defaults, and the settings that they come from: tests and notebooks change those. Replaced as a whole.
        self._resolved: tuple[tuple[str | None, ...], tuple[str, str]] | None = None

    def defaults(self) -> tuple[str, str]:
        """The default scope and session."""
        settings = tuple(os.environ.get(name) for name in _SETTINGS)
        resolved = self._resolved
        if resolved is None or resolved[0] != settings:
            import entrepot

            with entrepot.connect(self._address, scope=self._scope, session=self._session) as store:
                resolved = settings, (store.scope, store.session_name)
            self._resolved = resolved
        return resolved[1]

    def all(self) -> list[SessionInfo]:
        """Every session of the store, in all scopes."""
        return inventory.sessions(self.any_store())

    def any_store(self) -> Store:
        """A connection, for what does not depend on the session."""
        return connections.scope_store(self._address, self.defaults()[0])

    def exists(self, scope: str, session: str) -> bool:
        """Whether there is such a session."""
        return any(info.scope == scope and info.session == session for info in self.all())

    def open(self, scope: str, session: str, *, create: bool = False) -> Store:
        """A session. It remains open until the last reference to the result is gone.

        Args:
            scope, session: its name.
            create: whether to create it if there is none.

        Raises:
            ObjectNotFound: there is none.
        """
        own_scope = scope == self.defaults()[0]
        permanent = own_scope and session == SCOPE_SESSION
        if not create and not permanent and not self.exists(scope, session):
            raise ObjectNotFound(f"scope {scope!r} has no session {session!r}: `entrepot sessions` lists them")
        ttl = self._ttl if create else DEFAULT_TTL_SECONDS  # reading leaves a session's time to live as it is
        if own_scope:
            return connections.session_store(self._address, scope, session, ttl)
        store = connections.unshared_store(self._address, scope, session)
        return store if ttl == DEFAULT_TTL_SECONDS or not session else store.session(session, ttl=ttl)

    def remove_if_empty(self, scope: str, session: str) -> bool:
        """Remove a session that has no objects; return whether it had none. A scope's own session remains."""
        if any(info.objects for info in self.all() if info.scope == scope and info.session == session):
            return False
        if session != SCOPE_SESSION:
            self.open(scope, session).remove_session(session)
        return True
