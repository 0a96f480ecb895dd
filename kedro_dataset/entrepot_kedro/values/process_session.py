"""The session of datasets that belong to this process only, which is removed when the process exits.

It is open from its first use on, so that it is in use, and does not expire, while the process computes something or a
notebook waits for its user.
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
# Storage options by (address, scope) that have values of this process; guarded by _lock.
_process_scopes: dict[tuple[str | None, str], Mapping[str, Any] | None] = {}
# The session, and the instance in which it was opened, by (address, scope); guarded by _lock.
_held: dict[tuple[str | None, str], tuple[str, Store]] = {}


@dataclass(frozen=True)
class SessionLocation:
    """A session of a store, with the storage options of its durable tier."""

    address: str | None
    scope: str
    session: str
    storage_options: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


def register_process_session(address: str | None, scope: str, storage_options: Mapping[str, Any] | None = None) -> None:
    """Register a dataset that belongs to this process only: its values are removed when the process exits."""
    with _lock:
        if not _process_scopes:
            atexit.register(_remove_process_sessions, os.getpid())
        _process_scopes[address, scope] = storage_options or _process_scopes.get((address, scope))


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


def _remove_process_sessions(pid: int) -> None:
    if os.getpid() != pid:
        return  # in a fork of that process
    for (address, scope), storage_options in list(_process_scopes.items()):
        remove_session(SessionLocation(address, scope, PROCESS_SESSION, storage_options), address)


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
