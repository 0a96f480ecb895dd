"""Names and sessions: methods of ``Store``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from entrepot._client import queries
from entrepot._client.arguments import AnyID, checked_boolean, checked_name, checked_text, timeout_seconds, to_id
from entrepot._client.info import SessionInfo
from entrepot.codec import CopyMode
from entrepot.errors import ObjectNotFound
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._client.store import Store

_MAX_ATTEMPTS = 64  # attempts to resolve a name that is rebound faster than its object can be read


class SessionMethods:
    """Methods of :class:`Store` for names and sessions."""

    _scope: str
    _session_number: int

    def _raw(self) -> _core.Client:
        raise NotImplementedError

    def get(self, oid: AnyID, *, timeout: float | None = 0, copy: CopyMode = "never") -> Any:
        raise NotImplementedError

    def _open_session(self, name: str, limits: tuple[int, int, int] | None, delete_consumed: bool | None) -> Store:
        raise NotImplementedError

    # --- names

    def set_name(self, name: str, oid: AnyID, *, replace: bool = False) -> None:
        """Bind a name of this session to an object.

        Raises:
            ObjectExists: the name is taken, and ``replace`` is False.
            ObjectNotFound: the object is not sealed here.
        """
        self._raw().bind_name(
            self._session_number, checked_name(name), to_id(oid).binary, checked_boolean("replace", replace)
        )

    def resolve(self, name: str, *, timeout: float | None = 0) -> ObjectID:
        """Return the ID bound to a name in this session.

        Raises:
            ObjectNotFound: there is no such name, and no timeout was given.
            Timeout: it was not bound in time.
        """
        return ObjectID(self._raw().resolve_name(self._session_number, checked_name(name), timeout_seconds(timeout)))

    def get_by_name(self, name: str, *, timeout: float | None = 0, copy: CopyMode = "never") -> Any:
        """Return the value of the object bound to a name in this session; as ``get``."""
        deadline = time.monotonic() + timeout_seconds(timeout)
        remaining, attempts = timeout, 0
        while True:
            oid = self.resolve(name, timeout=remaining)
            try:
                return self.get(oid, copy=copy)  # a bound name refers to a sealed object: nothing to wait for
            except ObjectNotFound:  # replaced or deleted since the name was resolved: resolve it again
                attempts += 1
                if attempts == _MAX_ATTEMPTS:
                    raise
                remaining = max(deadline - time.monotonic(), 0.0) if timeout else timeout

    def unset_name(self, name: str) -> None:
        """Remove a name; the object stays.

        Raises:
            ObjectNotFound: there is no such name.
        """
        self._raw().unbind_name(self._session_number, checked_name(name))

    # --- sessions

    def session(
        self,
        name: str,
        *,
        ttl: float | None = None,
        limit_bytes: int | None = None,
        delete_consumed: bool | None = None,
    ) -> Store:
        """Open another session of this scope over the same connection; create it if it does not exist.

        Args:
            name: its name; ``""`` is the scope's own session.
            ttl: seconds after its last use until the session is removed with everything in it; 0: never. Default: keep
                its current TTL; one day for a new session.
            limit_bytes: maximum number of bytes that it may hold; default: keep its current limit; none for a new one.
            delete_consumed: delete each object as soon as its last consumer has finished. Default: keep the current
                setting; in a new session, such objects stay until memory is short.
        """
        limits = queries.session_limits(self._raw(), self._scope, name, ttl, limit_bytes)
        if delete_consumed is not None:
            delete_consumed = checked_boolean("delete_consumed", delete_consumed)
        return self._open_session(name, limits, delete_consumed)

    def sessions(self) -> list[SessionInfo]:
        """Return the sessions of this scope."""
        return queries.sessions_of(self._raw(), self._scope)

    def remove_session(self, name: str) -> None:
        """Remove a session of this scope with all its objects and names. Values already read stay valid.

        Raises:
            ObjectNotFound: there is no such session.
        """
        self._raw().remove_session(self._scope, checked_text("a session's name", name))
