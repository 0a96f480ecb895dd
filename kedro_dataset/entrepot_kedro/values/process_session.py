"""The session of datasets that belong to this process only, which is removed when the process exits."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from dataclasses import dataclass

from entrepot.errors import EntrepotError, ObjectNotFound

from entrepot_kedro.values.sessions import PROCESS_SESSION

_lock = threading.Lock()
_process_scopes: set[tuple[str | None, str]] = set()  # (address, scope) with values of this process; guarded by _lock


@dataclass(frozen=True)
class SessionLocation:
    """A session of a store."""

    address: str | None
    scope: str
    session: str


def register_process_session(address: str | None, scope: str) -> None:
    """Register a dataset that belongs to this process only: its values are removed when the process exits."""
    with _lock:
        if not _process_scopes:
            atexit.register(_remove_process_sessions, os.getpid())
        _process_scopes.add((address, scope))


def _remove_process_sessions(pid: int) -> None:
    if os.getpid() != pid:
        return  # in a fork of that process
    for address, scope in list(_process_scopes):
        remove_session(SessionLocation(address, scope, PROCESS_SESSION), address)


def remove_session(location: SessionLocation, address: str | None) -> None:
    """Remove a session over a connection of its own; do nothing if no store answers."""
    import entrepot
    from entrepot import garbage

    with suppress(EntrepotError):
        if garbage.store_answers(address):
            with entrepot.connect(address, scope=location.scope, session="") as store, suppress(ObjectNotFound):
                store.remove_session(location.session)
