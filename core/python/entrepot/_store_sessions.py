"""The methods of a store about names and sessions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from entrepot import _reports
from entrepot._arguments import AnyID, checked_name, seconds, switch, text, to_id
from entrepot._info import SessionInfo
from entrepot.codec import CopyMode
from entrepot.errors import ObjectNotFound
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._store import Store

_MOST_TURNS = 64  # of resolving a name that is bound anew faster than its object is got


class SessionMethods:
    """Part of :class:`Store`."""

    _scope: str
    _session_number: int

    def _raw(self) -> _core.Client:
        raise NotImplementedError

    def get(self, oid: AnyID, *, timeout: float | None = 0, copy: CopyMode = "never") -> Any:
        raise NotImplementedError

    def _another(self, name: str, limits: tuple[int, int, int] | None, delete_consumed: bool | None) -> Store:
        raise NotImplementedError

    # --- names

    def set_name(self, name: str, oid: AnyID, *, replace: bool = False) -> None:
        """Bind a name of this session to an object.

        Raises:
            ObjectExists: the name is taken, and ``replace`` is False.
            ObjectNotFound: the object is not sealed here.
        """
        self._raw().bind_name(self._session_number, checked_name(name), to_id(oid).binary, switch("replace", replace))

    def resolve(self, name: str, *, timeout: float | None = 0) -> ObjectID:
        """The ID that a name of this session means.

        Raises:
            ObjectNotFound: there is no such name, and no timeout was given.
            Timeout: it was not bound in time.
        """
        return ObjectID(self._raw().resolve_name(self._session_number, checked_name(name), seconds(timeout)))

    def get_by_name(self, name: str, *, timeout: float | None = 0, copy: CopyMode = "never") -> Any:
        """The value of the object that a name of this session means; as ``get``."""
        deadline = time.monotonic() + seconds(timeout)
        left, turns = timeout, 0
        while True:
            oid = self.resolve(name, timeout=left)
            try:
                return self.get(oid, copy=copy)  # a name means what is there: nothing to wait for
            except ObjectNotFound:  # replaced or deleted since it was resolved: what the name means now is what counts
                turns += 1
                if turns == _MOST_TURNS:
                    raise
                left = max(deadline - time.monotonic(), 0.0) if timeout else timeout

    def unset_name(self, name: str) -> None:
        """Drop a name; the object stays.

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
        """Another session of this scope, over the same connection; made if it is not there.

        Args:
            name: its name; ``""`` is the scope's own.
            ttl: seconds after its last use at which it is removed with all that is in it; 0: never; default: what it
                has, or a day.
            limit_bytes: the most that it may hold; default: what it has, or no limit.
            delete_consumed: whether an object whose last consumer had it is deleted at once; default: what it has,
                or not before memory is short.
        """
        limits = _reports.session_limits(self._raw(), self._scope, name, ttl, limit_bytes)
        if delete_consumed is not None:
            delete_consumed = switch("delete_consumed", delete_consumed)
        return self._another(name, limits, delete_consumed)

    def sessions(self) -> list[SessionInfo]:
        """The sessions of this scope."""
        return _reports.sessions_of(self._raw(), self._scope)

    def remove_session(self, name: str) -> None:
        """Remove a session of this scope with all objects and names in it; what is read stays readable.

        Raises:
            ObjectNotFound: there is no such session.
        """
        self._raw().remove_session(self._scope, text("a session's name", name))
