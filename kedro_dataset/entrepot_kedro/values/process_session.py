"""Sessions of datasets that belong to this process only, which are removed when the process exits.

There is one for all datasets that are created in Python by themselves, and one for each catalog that is built in Python
(:func:`entrepot_kedro.catalog_config`). The former is open from its first use on, so that it is in use, and does not
expire, while the process computes something or a notebook waits for its user; the latter by its datasets.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot_io.connections import durable_tier

from entrepot_kedro.values.sessions import PROCESS_SESSION

if TYPE_CHECKING:
    from entrepot import Store

_lock = threading.Lock()
_own_sessions = {PROCESS_SESSION}  # names of sessions that no other process needs; guarded by _lock
# Storage options by (address, scope, session) that have values of this process; guarded by _lock.
_used_sessions: dict[tuple[str | None, str, str], Mapping[str, Any] | None] = {}
# The session, and the instance in which it was opened, by (address, scope); guarded by _lock.
_held: dict[tuple[str | None, str], tuple[str, Store]] = {}


@dataclass(frozen=True)
class SessionLocation:
    """A session of a store, with the storage options of its durable tier."""

    address: str | None
    scope: str
    session: str
    storage_options: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


def add_own_session(session: str) -> None:
    """Declare that a session is this process's own: it is removed when the process exits."""
    with _lock:
        _own_sessions.add(session)


def register_own_session(
    address: str | None, scope: str, session: str, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Register a dataset: if its session is this process's own, its value is removed when the process exits."""
    with _lock:
        if session not in _own_sessions:
            return
        if not _used_sessions:
            atexit.register(_remove_own_sessions, os.getpid())
        place = (address, scope, session)
        _used_sessions[place] = storage_options or _used_sessions.get(place)


def hold_process_session(address: str | None, scope: str, store: Store) -> None:
    """Keep the session open until the process exits, unless it is already.

    Args:
        address, scope: of the datasets.
        store: the session, just opened.
    """
    instance = store.instance_id
    with _lock:
        if _held.get((address, scope), ("",))[0] != instance:  # it ended with an instance that is gone
            _held[address, scope] = instance, store


def _remove_own_sessions(pid: int) -> None:
    if os.getpid() != pid:
        return  # in a fork of that process
    for (address, scope, session), storage_options in list(_used_sessions.items()):
        remove_session(SessionLocation(address, scope, session, storage_options), address)


def remove_session(location: SessionLocation, address: str | None) -> None:
    """Remove a session over a connection of its own; do nothing if no store answers."""
    import entrepot
    from entrepot import garbage

    with suppress(EntrepotError):
        if garbage.store_answers(address):
            durable = durable_tier(location.storage_options)
            opened = entrepot.connect(address, scope=location.scope, session="", durable=durable)
            with opened as store, suppress(ObjectNotFound):
                store.remove_session(location.session)
