"""``entrepot.connect``: one client for each address and process, shared by its stores."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path

from entrepot import _core
from entrepot._launcher import ensure_running
from entrepot._settings import Settings, resolve, socket_path
from entrepot._shared_client import SharedClient
from entrepot._store import Store
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


def connect(address: str | None = None, *, session: str | None = None, scope: str | None = None) -> Store:
    """Connect to a store.

    Each setting comes from the argument, else the environment, else the configuration file
    (``~/.config/entrepot/config.toml``, or what ENTREPOT_CONFIG names), else the default.

    Args:
        address: ``unix:///absolute/path`` (ENTREPOT_ADDRESS); default: this user's private store, which is started if
            it does not run.
        session: session in the scope (ENTREPOT_SESSION); default ``""``, the scope's own, which never expires.
        scope: the deployment (ENTREPOT_SCOPE); default ``"default"``.

    Raises:
        InvalidArgument: a setting has the wrong form.
        StoreUnavailable: no store answers, or none may be started here.
        AccessDenied: the store belongs to another user.
        VersionMismatch: the store's version is too far from this one.
    """
    settings = resolve(address, session=session, scope=scope)
    client = _running_client(settings)
    try:
        return _open(client, settings)
    except StoreUnavailable:
        if not client.raw.closed:
            raise
    # The connection that this process had was to a store that is gone; another one may listen there by now.
    return _open(_running_client(settings), settings)


def _running_client(settings: Settings) -> SharedClient:
    """A client of the store that the settings name; a private one is started if it does not run."""
    if settings.configured:
        return _client(settings.address)
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
    raw = _core.connect(str(socket_path(address)), _label(), _version(), CONNECT_SECONDS, RECONNECT_SECONDS)
    made = SharedClient(raw)
    with _lock:
        known = _clients.get(address)
        if known is not None and known.acquire():
            raw.close()  # another thread was faster
            return known
        _clients[address] = made
    return made


def _label() -> str:
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return name.encode("utf-8", "replace")[:47].decode("utf-8", "ignore")


def _version() -> str:
    import entrepot

    return str(entrepot.__version__)
