"""Sessions of datasets that belong to this process only, which are removed when the process exits.

There is one for all datasets that are created in Python by themselves, and one for each catalog that is built in Python
(:func:`entrepot_kedro.catalog_config`). The former is open from its first use on, so that it is in use, and does not
expire, while the process computes something or a notebook waits for its user; the latter by its datasets.

A fork has sessions of its own, and leaves its parent's alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot_io.connections import durable_tier

if TYPE_CHECKING:
    from entrepot import Store

_lock = threading.Lock()
_own_sessions: dict[str, int] = {}  # sessions that only one process needs, with its PID; guarded by _lock
# By the PID of that process: storage options by (address, scope, session) that have values of it; guarded by _lock.
_used_sessions: dict[int, dict[tuple[str | None, str, str], Mapping[str, Any] | None]] = {}
# The session, and the instance in which it was opened, by (address, scope, session); guarded by _lock.
_held: dict[tuple[str | None, str, str], tuple[str, Store]] = {}


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
        _own_sessions[session] = os.getpid()


def register_own_session(
    address: str | None, scope: str, session: str, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Register a dataset: if its session is this process's own, its value is removed when the process exits."""
    pid = os.getpid()
    with _lock:
        if _own_sessions.get(session) != pid:
            return
        if (used := _used_sessions.get(pid)) is None:
            used = _used_sessions[pid] = {}
            # Unlike atexit, it is also called at the end of a process that multiprocessing has forked.
            Finalize(None, _remove_own_sessions, args=(pid,), exitpriority=0)
        place = (address, scope, session)
        used[place] = storage_options or used.get(place)


def hold_process_session(address: str | None, scope: str, session: str, store: Store) -> None:
    """Keep a session open until the process exits, unless it is already.

    Args:
        address, scope, session: of the datasets.
        store: the session, just opened.
    """
    instance = store.instance_id
    with _lock:
        if _held.get((address, scope, session), ("",))[0] != instance:  # it ended with an instance that is gone
            _held[address, scope, session] = instance, store


def _remove_own_sessions(pid: int) -> None:
    if os.getpid() != pid:
        return  # in a fork of that process
    for (address, scope, session), storage_options in list(_used_sessions[pid].items()):
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
