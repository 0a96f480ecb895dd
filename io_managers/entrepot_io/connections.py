"""Per-process store connections, shared by everything that an orchestrator runs in the process.

A task process connects once, at the first value it passes on; its threads share the connection. After a ``fork`` the
client gives the child its own connection, so the cache stays valid there; only the lock is replaced, because another
thread of the parent may have held it.

A dead store is noticed before a value is written or read: the connection, and with it every ``Store`` that uses it,
cached here or held by a user, then switches to the store now listening at the address.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from entrepot.errors import EntrepotError

from entrepot_io.plain_log import plain_logger
from entrepot_io.sessions import DEFAULT_TTL_SECONDS, SCOPE_SESSION

if TYPE_CHECKING:
    from entrepot import Allocating, Durable, Store
    from entrepot.codec import ObjectStrings

ANSWER_SECONDS = 1.0  # how long a task that may need no store waits for one that does not answer

PickleRule = tuple[bool | None, Callable[[str], bool] | None]

log = plain_logger(__name__)


@dataclass(frozen=True)
class _ValueMemory:
    """The store in which NumPy and Arrow make this process's values.

    Attributes:
        address: as it was asked for; None: as ``entrepot.connect`` finds it.
        store: a connection to it.
        allocating: what has begun.
    """

    address: str | None
    store: Store
    allocating: Allocating


_lock = threading.Lock()
# Guarded by _lock. Key: address, scope, pickle rule, ENTREPOT_ALLOW_PICKLE, what text is read as, storage options.
_stores: dict[tuple[str | None, str, PickleRule, str | None, str | None, str], Store] = {}
_allocating: _ValueMemory | None = None  # guarded by _lock
# Sessions that a reader of many values keeps open, by address, scope, session and pickle rule; guarded by _lock.
_held: WeakValueDictionary[tuple[str | None, str, str, PickleRule], Store] = WeakValueDictionary()
# Replaced as a whole by the process's orchestrator; read at each use of a store.
_pickle_rule: PickleRule = (None, None)


def permit_pickle(allow: bool | None, classes: Callable[[str], bool] | None) -> None:
    """Set which pickled values the connections of this process accept.

    Args:
        allow, classes: as for ``entrepot.connect``. Connections are cached per function object, so pass a module-level
            function rather than one created for each call.
    """
    global _pickle_rule
    _pickle_rule = (allow, classes)


def durable_tier(storage_options: Mapping[str, Any] | None) -> Durable | None:
    """The durable tier that the settings name, with storage options of its own; ``None``: there are none.

    Args:
        storage_options: for fsspec's driver, such as credentials.

    Raises:
        InvalidArgument: there are options, but no durable tier for them; or it is a relative path.
    """
    if not storage_options:
        return None
    durable = _requested_durable(storage_options)
    if durable is None:
        from entrepot.errors import InvalidArgument

        raise InvalidArgument(
            "credentials are for the place where values are also written, and there is none: set ENTREPOT_DURABLE to a "
            "URL such as s3://bucket/runs, or remove the credentials"
        )
    return durable


def _requested_durable(storage_options: Mapping[str, Any] | None = None) -> Durable | None:
    """Return the durable tier that the settings name; None: they name none."""
    from entrepot._daemon.settings import resolve
    from entrepot.durable import durable_of_settings

    settings = resolve()
    return durable_of_settings(settings.durable, settings.durable_mode, storage_options)


def has_durable_tier() -> bool:
    """Whether the settings name a durable tier: ENTREPOT_DURABLE, or the configuration file.

    Raises:
        InvalidArgument: they name what cannot be one.
    """
    return _requested_durable() is not None


def check_durable_folder() -> None:
    """Check that the durable tier that the settings name can be written, if it is a folder.

    A URL is not tried: its driver may not be used in processes that are forked once it is loaded.

    Raises:
        InvalidArgument: it cannot be written; the message has the reason.
    """
    from entrepot._checkpoints.functions import checkpoint_function
    from entrepot.errors import InvalidArgument

    durable = _requested_durable()
    if durable is None or "://" in durable.url.removeprefix("file://"):
        return
    try:
        checkpoint_function("tier")(durable).check()
    except EntrepotError as error:
        raise InvalidArgument(f"ENTREPOT_DURABLE is {durable.url}, where nothing can be written: {error}") from error


def scope_store(
    address: str | None,
    scope: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    object_strings: ObjectStrings | None = None,
) -> Store:
    """The scope's own session, in the current store; its contents outlive runs.

    Args:
        address: of the store; ``None`` for the one that ``entrepot.connect`` finds.
        scope: the deployment.
        storage_options: for the durable tier (:func:`durable_tier`); ``None``: what its driver finds by itself.
        object_strings: what pandas columns of Python's strings are read as; ``None``: as ``entrepot.connect`` finds it.

    Raises:
        InvalidArgument: there are options, but no durable tier for them.
        StoreUnavailable: nothing answers at that address.
    """
    from entrepot import raw_objects

    # Whatever connect() would look up is part of the key, because a test or a notebook may change it.
    pickle_rule = _pickle_rule
    environment = os.environ.get
    key = (
        address or environment("ENTREPOT_ADDRESS"),
        scope,
        pickle_rule,
        environment("ENTREPOT_ALLOW_PICKLE"),
        object_strings or environment("ENTREPOT_OBJECT_STRINGS"),
        repr(sorted(storage_options.items())) if storage_options else "",
    )
    with _lock:
        store = _stores.get(key)
        if store is None or store.closed:
            store = _connect(address, scope, SCOPE_SESSION, pickle_rule, durable_tier(storage_options), object_strings)
            _stores[key] = store
            return store
    raw_objects.ensure_connected(store)
    return store


def session_store(
    address: str | None,
    scope: str,
    session: str,
    ttl: float | None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    object_strings: ObjectStrings | None = None,
) -> Store:
    """A session of a scope, created if missing, with a time to live.

    Args:
        address, scope, storage_options, object_strings: as for :func:`scope_store`.
        session: its name; empty for the scope's own session, which never expires.
        ttl: seconds that the session lives after its last use; ``None`` for the store's default.

    Raises:
        StoreUnavailable: nothing answers at that address.
    """
    store = scope_store(address, scope, storage_options, object_strings=object_strings)
    if session == SCOPE_SESSION:
        return store
    if ttl is None and object_strings is None and (held := _held_session(store, address, scope, session)) is not None:
        return held
    # Equal to the store's own default; setting a TTL explicitly costs a lookup of all sessions.
    return store.session(session, ttl=None if ttl == DEFAULT_TTL_SECONDS else ttl)


def hold_session(address: str | None, scope: str, session: str) -> Store:
    """A session that is opened once for many reads: as long as the caller keeps it, :func:`session_store` returns it.

    Opening and closing a session takes two requests to the daemon, which is more than getting a small value does.

    Args, errors: as for :func:`session_store`.
    """
    store = session_store(address, scope, session, None)
    with _lock:
        _held[address, scope, session, _pickle_rule] = store
    return store


def _held_session(current: Store, address: str | None, scope: str, session: str) -> Store | None:
    """Return a session that is held on the current connection; None: there is none."""
    with _lock:
        held = _held.get((address, scope, session, _pickle_rule))
    if held is None or held.closed or held.instance_id != current.instance_id:
        return None
    return held


def move_durable_tier(store: Store) -> None:
    """Make a durable session durable where the settings say now, if they say so; its driver is not loaded.

    Otherwise it would stay where it was declared at first, which may have been a mistake.

    Args:
        store: the session.

    Raises:
        InvalidArgument: a malformed setting.
    """
    from entrepot._store.access import redeclare

    redeclare(store._session, _requested_durable())  # pyright: ignore[reportPrivateUsage]


def unshared_store(address: str | None, scope: str, session: str, *, durable: bool = True) -> Store:
    """A session of a scope, in a ``Store`` of its own, which is not cached; the scope's own session is not opened.

    Args:
        address, scope: as for :func:`scope_store`.
        session: its name.
        durable: with the durable tier that the environment names, if it does.

    Raises:
        StoreUnavailable: nothing answers at that address.
    """
    return _connect(address, scope, session, _pickle_rule, None if durable else False)


def _connect(
    address: str | None,
    scope: str,
    session: str,
    pickle_rule: PickleRule,
    durable: Durable | Literal[False] | None = None,
    object_strings: ObjectStrings | None = None,
) -> Store:
    import entrepot

    return entrepot.connect(
        address,
        session=session,
        scope=scope,
        durable=durable,
        allow_pickle=pickle_rule[0],
        pickled_classes=pickle_rule[1],
        object_strings=object_strings,
    )


def listener_of(address: str | None) -> str:
    """The path of the socket that a store listens on, the same for all addresses of a store.

    Args:
        address: as for :func:`scope_store`.

    Raises:
        InvalidArgument: a malformed setting.
    """
    from entrepot._daemon.settings import resolve, socket_path

    return os.path.realpath(socket_path(resolve(address).address))


def is_store_running(address: str | None) -> bool:
    """Whether a store listens, for what has nothing to do without one; the user's private store is not started.

    Args:
        address: as for :func:`scope_store`.

    Raises:
        InvalidArgument: a malformed setting.
    """
    from entrepot._daemon.launcher import is_forbidden, is_listening
    from entrepot._daemon.settings import resolve

    listener = resolve(address).address
    return is_listening(listener) or is_forbidden(listener)  # of another user: connecting to it says so


def make_values_in_store(address: str | None, scope: str, *, required: bool) -> None:
    """Let NumPy and Arrow make large values in the store (``Store.allocating``), in this process, until ``close_all``.

    If that is so already, the store is asked nothing, unless the connection to it has ended. The connection has no
    durable tier, because the task may pass nothing on; the store's client is the one that its values take.

    Args:
        address, scope: as for :func:`scope_store`.
        required: whether that was set. If not, a store that cannot be used, or does not answer within ANSWER_SECONDS,
            is no error here: if the task passes something on, that fails with the same reason. Nor are libraries'
            releases warned of.

    Raises:
        StoreUnavailable: it is required, and nothing answers at that address.
    """
    from entrepot import raw_objects

    asked_for = address or os.environ.get("ENTREPOT_ADDRESS")
    with _lock:
        current = _allocating
    if current is not None and (current.address != asked_for or current.store.closed):
        current = None
    if current is not None and raw_objects.is_connected(current.store):
        return
    try:
        if not required:
            from entrepot._store.connection import check_answers

            check_answers(address, ANSWER_SECONDS)
        if current is None:
            _start_allocating(asked_for, address, scope, warn=required)
        else:
            raw_objects.ensure_connected(current.store)  # values are then made in the store that is there now
    except EntrepotError as error:
        if required:
            raise
        log.debug("Entrepot: values are made in the process's own memory: %s", error)


def _start_allocating(asked_for: str | None, address: str | None, scope: str, *, warn: bool) -> None:
    global _allocating
    with _lock:
        if _allocating is not None and _allocating.address == asked_for and not _allocating.store.closed:
            return  # another thread has just begun
        _stop_allocating()
        store = _connect(address, scope, SCOPE_SESSION, _pickle_rule, False)
        allocating = store.allocating(warn=warn)
        allocating.start()
        _allocating = _ValueMemory(asked_for, store, allocating)


def _stop_allocating() -> None:
    """End it, if it has begun. Requires _lock."""
    global _allocating
    if _allocating is not None:
        former, _allocating = _allocating, None
        former.allocating.stop()
        former.store.close()


def close_all() -> None:
    """Close this process's connections. Values already read stay valid; the next use opens new connections."""
    with _lock:
        stores = list(_stores.values())
        _stores.clear()
        _stop_allocating()
    for store in stores:
        store.close()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
