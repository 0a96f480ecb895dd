"""Outputs of ops go with their run: Dagster tells nobody that a run was deleted, so a later run looks.

Whether a run is deleted in the user interface, by ``dagster run delete`` or ``wipe``, or from Python, its record is
gone. The first output that a process writes has the values of all such runs removed; ``entrepot gc`` does it where no
run follows. An ephemeral instance forgets its runs with itself, so its sessions are left to their time.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from entrepot import garbage
from entrepot.errors import EntrepotError

from entrepot_dagster.ended_runs import over
from entrepot_dagster.places import default_scope

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from entrepot import Store

log = logging.getLogger(__name__)
SWEEP_SECONDS = 60.0  # between two looks of a process
MOST_AT_ONCE = 200  # sessions that one look asks for, the longest unused first

_lock = threading.Lock()
_next: dict[tuple[str, str], float] = {}  # guarded by _lock; by address and scope: when to look again


def sweep(instance: DagsterInstance | None, address: str | None, scope: str, open_store: Callable[[], Store]) -> None:
    """Remove the sessions of deleted runs, if nobody looked lately. What is wrong is only logged.

    Args:
        instance: that knows which runs there are.
        address: of the store.
        scope: whose sessions.
        open_store: a session of that scope.
    """
    if instance is None or instance.is_ephemeral:
        return
    key, now = (address or "", scope), time.monotonic()
    with _lock:
        if now < _next.get(key, 0.0):
            return
        _next[key] = now + SWEEP_SECONDS
    if scope != default_scope(instance):
        return  # one that was set by hand may be shared by instances that do not know each other's runs
    try:
        remove_deleted(instance, open_store())
    except EntrepotError as error:
        log.info("Entrepot: the values of deleted runs stay until their sessions end: %s", error)


def remove_deleted(instance: DagsterInstance, store: Store) -> list[str]:
    """Remove the sessions of runs that the instance has no more; their names.

    Raises:
        EntrepotError: the store cannot be reached.
    """
    unused = garbage.unused_sessions(store, store.scope)
    oldest = sorted(unused, key=lambda name: unused[name])[:MOST_AT_ONCE]
    gone: list[str] = []
    for name, why in over(instance, oldest, succeeded=False).items():
        if not garbage.remove_session(store, store.scope, name, unused[name]):
            log.info("Entrepot: removed the values of %s: %s", name, why)
            gone.append(name)
    return gone


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
