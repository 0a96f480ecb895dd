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

from entrepot import _core
from entrepot._client.arguments import checked_boolean, checked_integer
from entrepot._client.session import Session
from entrepot._client.shared_client import SharedClient
from entrepot._daemon import kubernetes_env
from entrepot._daemon.settings import Settings, resolve, socket_path
from entrepot._store.objects import PUT_WAIT_SECONDS, to_item
from entrepot._store.store import Store
from entrepot.cluster_sessions import DECLARATION_KEY, MAX_REPLICAS, ClusterSession, cluster_session
from entrepot.codec import AllowPickle, ObjectStrings
from entrepot.durable import Durable, requested_durable
from entrepot.errors import InvalidArgument, StoreUnavailable
from entrepot.ids import ObjectID

CONNECT_SECONDS = 30.0
RECONNECT_SECONDS = 30.0
# A private daemon exits when idle, possibly between our check that it runs and our connection; then start it again.
START_ATTEMPTS = 3

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
    object_strings: ObjectStrings | None = None,
    cluster: bool | None = None,
    replicas: int | None = None,
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
        object_strings: what pandas columns of text that were put with dtype ``object`` are returned as
            (ENTREPOT_OBJECT_STRINGS): ``"object"`` (default), rebuilt as Python objects, or ``"arrow"``, as dtype
            ``str`` (``string`` where missing values are ``pandas.NA``) over the stored bytes, without a copy.
        cluster: True declares, for all processes, that the session's objects are published, so that other stores of
            the cluster find them by their ID (docs/cluster.md). Default, and False: as it was declared.
        replicas: with ``cluster=True``, on how many hosts each of the session's objects is to be. Default: as it was
            declared; 1 for a new one.

    Raises:
        InvalidArgument: a malformed setting.
        StoreUnavailable: no store answers, or none may be started here.
        AccessDenied: the store belongs to another user.
        VersionMismatch: the store's version is too far from this one.

    >>> import entrepot
    >>> with entrepot.connect(session="nightly") as store:
    ...     oid = store.put([1, 2, 3], name="numbers", replace=True)
    ...     store.get_by_name("numbers")
    [1, 2, 3]
    """
    settings = resolve(
        address,
        session=session,
        scope=scope,
        allow_pickle=allow_pickle,
        pickled_classes=pickled_classes,
        object_strings=object_strings,
    )
    is_cluster = cluster is not None and checked_boolean("cluster", cluster)
    _check_replicas(replicas, is_cluster)
    requested = requested_durable(durable, settings.durable, settings.durable_mode)
    session_opened = _open_session(_running_client(settings), settings)
    if is_cluster:
        _declare_cluster_session(session_opened, replicas)
    return Store._open(  # pyright: ignore[reportPrivateUsage]
        session_opened, connect, False if durable is False else requested
    )


connect.__module__ = "entrepot"  # pickled stores name it by its public path, which does not change


def check_answers(address: str | None, seconds: float) -> None:
    """Check that a store answers a new connection soon; a private one that does not run is no error: connect starts it.

    Args:
        address: of the store; None for the one that ``connect`` finds.
        seconds: the time that it has.

    Raises:
        InvalidArgument: a malformed setting.
        StoreUnavailable: none listens, or it does not answer in time.
        AccessDenied: the store belongs to another user.
        VersionMismatch: the store's version is too far from this one.
    """
    settings = resolve(address)
    if not settings.configured:
        from entrepot._daemon.launcher import is_listening  # imported late, as below

        if not is_listening(settings.address):
            return
    path = str(socket_path(settings.address))
    _core.connect(path, _client_label(), _core.VERSION, seconds, seconds).close()


def _running_client(settings: Settings) -> SharedClient:
    """Return a client of the configured store; start a private store if it does not run."""
    if settings.configured:
        return _acquire_client(settings.address, None)
    from entrepot._daemon.launcher import ensure_running  # imported late: not needed when a store is configured

    start = partial(ensure_running, settings)
    began = time.monotonic()
    for _ in range(START_ATTEMPTS - 1):
        start()
        try:
            return _acquire_client(settings.address, start)
        except StoreUnavailable:
            if time.monotonic() - began > CONNECT_SECONDS / 2:  # a daemon listened but did not answer: not an exit
                raise
    start()
    return _acquire_client(settings.address, start)


def _open_session(client: SharedClient, settings: Settings) -> Session:
    allow: AllowPickle | None = settings.allow_pickle
    try:
        if allow is None:
            allow = not client.raw.shared_between_users
    except BaseException:
        client.release(None)
        raise
    if allow and settings.pickled_classes is not None:
        allow = settings.pickled_classes
    return Session(
        client, settings.address, settings.scope, settings.session, allow, object_strings=settings.object_strings
    )


def _check_replicas(replicas: int | None, is_cluster: bool) -> None:
    if replicas is None:
        return
    if not checked_integer("replicas", replicas, MAX_REPLICAS):
        raise InvalidArgument(f"replicas must be an integer from 1 to {MAX_REPLICAS}, but got {replicas!r}")
    if not is_cluster:
        raise InvalidArgument(f"replicas={replicas} needs cluster=True: only then are the session's objects published")


def _declare_cluster_session(session: Session, replicas: int | None) -> None:
    """Record the declaration, unless it is recorded already; closes the session if that fails."""
    try:
        existing = cluster_session(session.client, session.scope, session.name)
        if existing is None or (replicas is not None and existing.replicas != replicas):
            oid = ObjectID.derive(session.scope, session.name, DECLARATION_KEY)
            declared = ClusterSession(1 if replicas is None else int(replicas))
            item = to_item(session, declared.to_bytes(), oid, False, DECLARATION_KEY, True)
            session.raw().put([item], PUT_WAIT_SECONDS)
    except BaseException:
        session.close()
        raise


def _acquire_client(address: str, start: Callable[[], object] | None) -> SharedClient:
    key = (address, start is not None)
    with _lock:
        cached = _clients.get(key)
        if cached is not None and cached.acquire():
            return cached
    raw = _connect_client(address, start)
    new_client = SharedClient(raw)
    with _lock:
        cached = _clients.get(key)
        if cached is not None and cached.acquire():
            raw.close()  # another thread connected first
            return cached
        _clients[key] = new_client
    return new_client


def _connect_client(address: str, start: Callable[[], object] | None) -> _core.Client:
    path = socket_path(address)
    try:
        return _core.connect(
            str(path),
            _client_label(),
            _core.VERSION,
            CONNECT_SECONDS,
            RECONNECT_SECONDS,
            start,
            partial(_warn_store_replaced, address),
        )
    except StoreUnavailable as error:
        if not kubernetes_env.in_pod():
            raise
        raise StoreUnavailable(f"{error}; {kubernetes_env.explain_not_answering(path)}") from error


def _warn_store_replaced(address: str, before: str, after: str, objects: int) -> None:
    """Warn that another store has taken over the address; called once, by the first thread to notice."""
    _log.warning(
        "the store at %s ended (instance %s, %d %s), and objects without a copy on disk are lost; another store has "
        "replaced it (instance %s), which this process now uses; values already read stay readable",
        address,
        before,
        objects,
        "object" if objects == 1 else "objects",
        after,
    )


def _client_label() -> str:
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return name.encode("utf-8", "replace")[:47].decode("utf-8", "ignore")
