"""One connection to a store per process, shared by everything that a host does in it.

A task process opens its connection once, at the first value that it hands over; threads share it. After a ``fork`` the
client gives the child a connection of its own, so the cache stays valid there; only its lock is renewed, because
another thread of the parent may have held it.

A store that died is noticed before a value is handed over or read: the connection then goes on with the store that is
there now, and with it every ``Store`` that uses it, whether it is cached here or held by a user.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from entrepot_io.sessions import DEFAULT_TTL_SECONDS, SCOPE_SESSION

if TYPE_CHECKING:
    from entrepot import Store

PickleRule = tuple[bool | None, Callable[[str], bool] | None]

_lock = threading.Lock()
# Guarded by _lock; by address, scope, and what says which pickled values are taken.
_stores: dict[tuple[str | None, str, PickleRule, str | None], Store] = {}
_rule: PickleRule = (None, None)  # replaced as a whole by whoever hosts this process; read with each use of a store


def permit_pickle(allow: bool | None, classes: Callable[[str], bool] | None) -> None:
    """Say which pickled values this process takes: its host's rule, for whatever it reads through these connections.

    Args:
        allow, classes: as ``entrepot.connect`` has them. A connection is made for each function, so it is one of a
            module, not made for each call.
    """
    global _rule
    _rule = (allow, classes)


def scope_store(address: str | None, scope: str) -> Store:
    """The scope's own session, in the store that is there now: what is in it outlives runs.

    Args:
        address: of the store, ``None`` for the one that ``entrepot.connect`` finds.
        scope: the deployment.

    Raises:
        StoreUnavailable: nothing answers at that address.
    """
    import entrepot
    from entrepot import parts

    # What connect() itself would look up is part of the key: a test or a notebook may change it.
    rule = _rule
    key = (address or os.environ.get("ENTREPOT_ADDRESS"), scope, rule, os.environ.get("ENTREPOT_ALLOW_PICKLE"))
    with _lock:
        store = _stores.get(key)
        if store is None or store.closed:
            store = entrepot.connect(
                address, session=SCOPE_SESSION, scope=scope, allow_pickle=rule[0], pickled_classes=rule[1]
            )
            _stores[key] = store
            return store
    parts.look(store)
    return store


def session_store(address: str | None, scope: str, session: str, ttl: float | None) -> Store:
    """A session of a scope, made if it is not there, with a time to live.

    Args:
        address, scope: as for :func:`scope_store`.
        session: its name; empty for the scope's own, which never expires.
        ttl: seconds that the session lives after its last use, ``None`` for the store's default.

    Raises:
        StoreUnavailable: nothing answers at that address.
    """
    store = scope_store(address, scope)
    if session == SCOPE_SESSION:
        return store
    # The store's own default is the same; to set another one costs a look at all sessions.
    return store.session(session, ttl=None if ttl == DEFAULT_TTL_SECONDS else ttl)


def close_all() -> None:
    """Close this process's connections; values already read stay valid. The next use opens new ones."""
    with _lock:
        stores = list(_stores.values())
        _stores.clear()
    for store in stores:
        store.close()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
