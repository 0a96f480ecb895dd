"""``entrepot.connect``: one client per address and process, shared by all its stores."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from entrepot import _core, _pod
from entrepot._settings import Settings, resolve, socket_path
from entrepot._shared_client import SharedClient
from entrepot._store import Store
from entrepot._store_checkpoints import as_declared
from entrepot.codec import AllowPickle
from entrepot.durable import Durable, wished
from entrepot.errors import StoreUnavailable

CONNECT_SECONDS = 30.0
RECONNECT_SECONDS = 30.0
# A private daemon exits when idle, possibly between our check that it runs and our connection; then start it again.
START_TRIES = 3

_lock = threading.Lock()
# Guarded by _lock. Key: address, and whether the client starts the store if it does not run.
_clients: weakref.WeakValueDictionary[tuple[str, bool], SharedClient] = weakref.WeakValueDictionary()
_log = logging.getLogger("entrepot")


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
    allow_pickle: bool | None = None,
    pickled_classes: Callable[[str], bool] | None = None,
) -> Store:
    """Connect to a store.

    Each setting comes from the argument, else the environment, else the configuration file
    (``~/.config/entrepot/config.toml``, or the one named by ENTREPOT_CONFIG), else the default.

    Args:
        address: ``unix:///absolute/path`` (ENTREPOT_ADDRESS); default: this user's private store, which is started if
            necessary.
        session: session within the scope (ENTREPOT_SESSION); default ``""``, the scope's own, which never expires.
        scope: the deployment (ENTREPOT_SCOPE); default ``"default"``.
        durable: a URL, or an ``entrepot.Durable``: declares the session durable, for all processes that open it from
            now on (ENTREPOT_DURABLE, ENTREPOT_DURABLE_MODE). Default: as it was declared. False: not durable for this
            connection.
        allow_pickle: whether to pickle values that no codec supports, and to read pickled ones
            (ENTREPOT_ALLOW_PICKLE). Default: True unless the daemon is shared between users.
        pickled_classes: if pickling is allowed, called with the name of each class or function in pickled data
            (``"package.module.Class"``); returns whether it may be loaded. Types that make up plain Python data are
            always allowed. Default: allow all.

    Raises:
        InvalidArgument: a malformed setting.
        StoreUnavailable: no store answers, or none may be started here.
        AccessDenied: the store belongs to another user.
        VersionMismatch: the store's version is too far from this one.
    """
    settings = resolve(
        address, session=session, scope=scope, allow_pickle=allow_pickle, pickled_classes=pickled_classes
    )
    wish = wished(durable, settings.durable, settings.durable_mode)
    store = _open(_running_client(settings), settings)
    if durable is False:
        return store
    if wish is None:
        return as_declared(store)
    from entrepot._durable_store import DurableStore

    return DurableStore.over(store, wish, declare=True)


def _running_client(settings: Settings) -> SharedClient:
    """Return a client of the configured store; start a private store if it does not run."""
    if settings.configured:
        return _client(settings.address, None)
    from entrepot._launcher import ensure_running  # imported late: not needed when a store is configured

    start = partial(ensure_running, settings)
    began = time.monotonic()
    for _ in range(START_TRIES - 1):
        start()
        try:
            return _client(settings.address, start)
        except StoreUnavailable:
            if time.monotonic() - began > CONNECT_SECONDS / 2:  # a daemon listened but did not answer: not an exit
                raise
    start()
    return _client(settings.address, start)


def _open(client: SharedClient, settings: Settings) -> Store:
    allow: AllowPickle | None = settings.allow_pickle
    if allow is None:
        allow = not client.raw.shared_between_users
    if allow and settings.pickled_classes is not None:
        allow = settings.pickled_classes
    try:
        return Store._open(  # pyright: ignore[reportPrivateUsage]
            client, settings.address, settings.scope, settings.session, allow
        )
    except BaseException:
        client.release(None)
        raise


def _client(address: str, start: Callable[[], object] | None) -> SharedClient:
    key = (address, start is not None)
    with _lock:
        known = _clients.get(key)
        if known is not None and known.acquire():
            return known
    raw = _connected(address, start)
    made = SharedClient(raw)
    with _lock:
        known = _clients.get(key)
        if known is not None and known.acquire():
            raw.close()  # another thread connected first
            return known
        _clients[key] = made
    return made


def _connected(address: str, start: Callable[[], object] | None) -> _core.Client:
    path = socket_path(address)
    try:
        return _core.connect(
            str(path), _label(), _core.VERSION, CONNECT_SECONDS, RECONNECT_SECONDS, start, partial(_succeeded, address)
        )
    except StoreUnavailable as error:
        if not _pod.in_pod():
            raise
        raise StoreUnavailable(f"{error}; {_pod.not_answering(path)}") from error


def _succeeded(address: str, before: str, after: str, objects: int) -> None:
    """Warn that another store has taken over the address; called once, by the first thread to notice."""
    _log.warning(
        "the store at %s ended (instance %s, %d %s), and what had no copy on disk is lost; another one is there now "
        "(instance %s), and this process goes on with it: values that were got stay readable",
        address,
        before,
        objects,
        "object" if objects == 1 else "objects",
        after,
    )


def _label() -> str:
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return name.encode("utf-8", "replace")[:47].decode("utf-8", "ignore")
