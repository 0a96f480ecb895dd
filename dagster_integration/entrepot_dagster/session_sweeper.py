"""Removal of deleted runs' outputs: Dagster does not notify anyone when a run is deleted, so later runs check.

Whether a run is deleted in the user interface, by ``dagster run delete`` or ``wipe``, or from Python, its record is
gone. A process's first output triggers the removal of the values of all such runs; if no run follows, ``entrepot gc``
does it. Sessions that were used a moment ago are left to a later sweep: where each step has a process of its own, each
would otherwise ask Dagster's database for the run that it belongs to. An ephemeral instance's run records end with it,
so its sessions are left to expire.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from entrepot.errors import EntrepotError

from entrepot_dagster.ended_runs import finished_sessions
from entrepot_dagster.values.keys import default_scope

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from entrepot import Store

log = logging.getLogger(__name__)
SWEEP_SECONDS = 60.0  # minimum interval between two sweeps of a process, and since a session's last use
MAX_SESSIONS_PER_SWEEP = 200  # maximum number of sessions checked per sweep, the longest unused first

_lock = threading.Lock()
_next: dict[tuple[str, str], float] = {}  # guarded by _lock; (address, scope) -> time of the next sweep


def sweep(instance: DagsterInstance | None, address: str | None, open_store: Callable[[], Store]) -> None:
    """Remove the sessions of deleted runs, unless that was done recently. Errors are only logged.

    Args:
        instance: the instance that knows which runs exist.
        address: address of the store.
        open_store: opens a session of the instance's own scope, which no other instance uses.
    """
    if instance is None or instance.is_ephemeral:
        return
    key, now = (address or "", default_scope(instance)), time.monotonic()
    with _lock:
        if now < _next.get(key, 0.0):
            return
        _next[key] = now + SWEEP_SECONDS
    try:
        remove_deleted(instance, open_store())
    except EntrepotError as error:
        log.info("Entrepot: cannot remove the values of deleted runs; they stay until their sessions end: %s", error)


def remove_deleted(instance: DagsterInstance, store: Store) -> list[str]:
    """Remove the sessions of runs that the instance no longer has; return their names.

    Raises:
        EntrepotError: the store cannot be reached.
    """
    from entrepot import garbage  # not in a process that reads only

    unused = garbage.unused_sessions(store, store.scope)
    used_before = time.time_ns() - int(SWEEP_SECONDS * 1e9)
    idle = (name for name, last_used in unused.items() if last_used <= used_before)
    oldest = sorted(idle, key=lambda name: unused[name])[:MAX_SESSIONS_PER_SWEEP]
    removed: list[str] = []
    for name, reason in finished_sessions(instance, oldest, succeeded=False).items():
        if not garbage.remove_session(store, store.scope, name, unused[name]):
            log.info("Entrepot: removed the values of %s: %s", name, reason)
            removed.append(name)
    return removed


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
