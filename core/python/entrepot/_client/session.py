"""A session as one store has it open: its connection, its handle, its time to live.

States::

    open ──close, or the last reference dropped──▶ closed
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from entrepot import _core
from entrepot._client import queries
from entrepot._client.arguments import checked_boolean
from entrepot._client.info import SessionInfo
from entrepot._client.shared_client import SharedClient
from entrepot.codec import AllowPickle, ObjectStrings
from entrepot.errors import EntrepotError, StoreUnavailable


class Session:
    """An open session of one scope. Thread-safe. The daemon keeps it, and its objects, as long as anyone has it open.

    Args:
        client: the connection; a reference to it passes to the session.
        address, scope, name: which session.
        allow_pickle: whether values may be pickled through this session.
        limits: TTL, bytes and objects to set; None: as they are.
        delete_consumed: whether objects are deleted once consumed; None: as it is.
        object_strings: what columns of text that were put with dtype ``object`` are returned as.

    Attributes:
        client, address, scope, name, allow_pickle, object_strings: as given; none of them changes.
        number: identifies the session in requests over this connection.
        closed: whether ``close`` was called. Set by the closing thread, read by all.
    """

    __slots__ = ("address", "allow_pickle", "client", "closed", "name", "number", "object_strings", "scope")

    def __init__(
        self,
        client: SharedClient,
        address: str,
        scope: str,
        name: str,
        allow_pickle: AllowPickle,
        limits: tuple[int, int, int] | None = None,
        delete_consumed: bool | None = None,
        *,
        object_strings: ObjectStrings = "object",
    ) -> None:
        self.client = client
        self.address = address
        self.scope = scope
        self.name = name
        self.allow_pickle: AllowPickle = allow_pickle
        self.object_strings: ObjectStrings = object_strings
        self.closed = True  # nothing to close if the daemon refuses
        try:
            self.number: int = client.raw.open_session(scope, name, limits, delete_consumed)
        except BaseException:
            client.release(None)
            raise
        self.closed = False

    def raw(self) -> _core.Client:
        """Return the client.

        Raises:
            StoreUnavailable: the session is closed.
        """
        if self.closed:
            raise StoreUnavailable("this store was closed by close(): connect again")
        return self.client.raw

    def open_another(
        self, name: str, *, ttl: float | None, limit_bytes: int | None, delete_consumed: bool | None
    ) -> Session:
        """Open another session of this scope over the same connection; see ``Store.session``."""
        limits = queries.session_limits(self.raw(), self.scope, name, ttl, limit_bytes)
        if delete_consumed is not None:
            delete_consumed = checked_boolean("delete_consumed", delete_consumed)
        if self.closed or not self.client.acquire():
            raise StoreUnavailable("this store was closed by close(): connect again")
        return Session(
            self.client,
            self.address,
            self.scope,
            name,
            self.allow_pickle,
            limits,
            delete_consumed,
            object_strings=self.object_strings,
        )

    def all(self) -> list[SessionInfo]:
        """Return the sessions of this scope."""
        return queries.sessions_of(self.raw(), self.scope)

    def number_of(self, name: str | None) -> int:
        """Return the number of another session of this scope; of this one for None.

        Raises:
            ObjectNotFound: there is no such session.
        """
        raw = self.raw()
        return self.number if name is None else queries.session_number(raw, self.scope, name)

    def remove(self, name: str) -> None:
        """Remove a session of this scope.

        Raises:
            ObjectNotFound: there is no such session.
        """
        self.raw().remove_session(self.scope, queries.checked_session_name(name))

    def close(self) -> None:
        """Tell the daemon that this user is done with the session. Idempotent."""
        if not self.closed:
            self.closed = True
            self.client.release((self.scope, self.name))

    def __del__(self, _finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At interpreter exit, module globals may be gone already; the process's exit tells the daemon anyway.
        if getattr(self, "closed", True) is False and not _finalizing():
            with suppress(EntrepotError):
                self.close()
