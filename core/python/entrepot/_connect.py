"""``entrepot.connect``: one client for each address and process, shared by its stores."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Literal

from entrepot import _core, _pod
from entrepot._settings import Settings, resolve, socket_path
from entrepot._shared_client import SharedClient
from entrepot._store import Store
from entrepot._store_checkpoints import as_declared
from entrepot.durable import Durable, wished
from entrepot.errors import StoreUnavailable

CONNECT_SECONDS = 10.0
RECONNECT_SECONDS = 30.0
# The private daemon goes when it has been idle: it may do so between our look and our connection.
START_TRIES = 3

_lock = threading.Lock()
_clients: weakref.WeakValueDictionary[str, SharedClient] = weakref.WeakValueDictionary()  # guarded by _lock


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


def connect(
    address: str | None = None,
    *,
    session: str | None = None,
    scope: str | None = None,
    durable: Durable | str | Literal[False] | None = None,
) -> Store:
    """Connect to a store.

    Each setting comes from the argument, else the environment, else the configuration file
    (``~/.config/entrepot/config.toml``, or what ENTREPOT_CONFIG names), else the default.

    Args:
        address: ``unix:///absolute/path`` (ENTREPOT_ADDRESS); default: this user's private store, which is started if
            it does not run.
        session: session in the scope (ENTREPOT_SESSION); default ``""``, the scope's own, which never expires.
        scope: the deployment (ENTREPOT_SCOPE); default ``"default"``.
        durable: a URL, or an ``entrepot.Durable``: the session is declared durable, for all processes that open it from
            now on (ENTREPOT_DURABLE, ENTREPOT_DURABLE_MODE). Default: what it was declared to be; False: not for this
            connection.

    Raises:
        InvalidArgument: a setting has the wrong form.
        StoreUnavailable: no store answers, or none may be started here.
        AccessDenied: the store belongs to another user.
        VersionMismatch: the store's version is too far from this one.
    """
    settings = resolve(address, session=session, scope=scope)
    wish = wished(durable, settings.durable, settings.durable_mode)
    client = _running_client(settings)
    try:
        store = _open(client, settings)
    except StoreUnavailable:
        if not client.raw.closed:
            raise
        # The connection that this process had was to a store that is gone; another one may listen there by now.
        store = _open(_running_client(settings), settings)
    if durable is False:
        return store
    if wish is None:
        return as_declared(store)
    from entrepot._durable_store import DurableStore

    return DurableStore.over(store, wish, declare=True)


def _running_client(settings: Settings) -> SharedClient:
    """A client of the store that the settings name; a private one is started if it does not run."""
    if settings.configured:
        return _client(settings.address)
    from entrepot._launcher import ensure_running  # here: who names a store has no use for it

    for _ in range(START_TRIES - 1):
        ensure_running(settings)
        with suppress(StoreUnavailable):
            return _client(settings.address)
    ensure_running(settings)
    return _client(settings.address)


def _open(client: SharedClient, settings: Settings) -> Store:
    allow = settings.allow_pickle
    if allow is None:
        allow = not client.raw.shared_between_users
    try:
        return Store._open(  # pyright: ignore[reportPrivateUsage]
            client, settings.address, settings.scope, settings.session, allow
        )
    except BaseException:
        client.release(None)
        raise


def _client(address: str) -> SharedClient:
    with _lock:
        known = _clients.get(address)
        if known is not None and known.acquire():
            return known
    raw = _connected(socket_path(address))
    made = SharedClient(raw)
    with _lock:
        known = _clients.get(address)
        if known is not None and known.acquire():
            raw.close()  # another thread was faster
            return known
        _clients[address] = made
    return made


def _connected(path: Path) -> _core.Client:
    try:
        return _core.connect(str(path), _label(), _core.VERSION, CONNECT_SECONDS, RECONNECT_SECONDS)
    except StoreUnavailable as error:
        if not _pod.in_pod():
            raise
        raise StoreUnavailable(f"{error}; {_pod.not_answering(path)}") from error


def _label() -> str:
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return name.encode("utf-8", "replace")[:47].decode("utf-8", "ignore")
