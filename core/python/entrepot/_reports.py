"""Queries to the daemon about its status, objects and sessions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from numbers import Real
from typing import TYPE_CHECKING, Any

from entrepot import _core
from entrepot._arguments import text, whole_number
from entrepot._collection_tree import described
from entrepot._info import ObjectInfo, SessionInfo, object_info, session_info
from entrepot._locality import handle_in
from entrepot._settings import SESSION_MAX_BYTES
from entrepot.codec import inlined_bytes, unpack_tree
from entrepot.errors import EntrepotError, InvalidArgument, ObjectNotFound
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._store import Store

DEFAULT_SESSION_TTL = 24 * 3600
MOST_TTL_SECONDS = 1 << 32  # more than a century; 0 means no expiry
_LIST_PAGE = 1000


def status_of(client: _core.Client) -> dict[str, Any]:
    """Return capacity, usage and clients."""
    status: dict[str, Any] = json.loads(client.status())
    return status


def info_of(client: _core.Client, oid: ObjectID) -> ObjectInfo:
    """Return the metadata of one object."""
    return _info(json.loads(client.info(oid.binary)), client)


def listing(
    client: _core.Client, session: int, pattern: str = "*", *, everywhere: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the objects of a session (or of all sessions, if ``everywhere``) whose name or ID matches, as raw JSON.

    They are fetched page by page: objects that come or go meanwhile may or may not be included.
    """
    cursor: int | None = 0
    while cursor is not None:
        page = json.loads(client.list(session, everywhere, pattern, cursor, _LIST_PAGE))
        yield from page["objects"]
        cursor = page["next_cursor"]


def list_objects(client: _core.Client, session: int, pattern: str) -> list[ObjectInfo]:
    """Return all objects of a session whose name or ID matches."""
    return [_info(one, client) for one in listing(client, session, pattern)]


def everywhere(store: Store, pattern: str, scope: str | None) -> list[ObjectInfo]:
    """Return the objects of all sessions (of one scope, unless that is None) whose name or ID matches."""
    client, session = store._raw(), store._session_number  # pyright: ignore[reportPrivateUsage]
    found = listing(client, session, pattern, everywhere=True)
    return [_info(one, client) for one in found if scope is None or one["scope"] == scope]


def sessions_of(client: _core.Client, scope: str) -> list[SessionInfo]:
    """Return the sessions of a scope."""
    return [session_info(one) for one in _sessions(client, scope)]


def session_number(client: _core.Client, scope: str, name: str) -> int:
    """Return the handle of an existing session."""
    life = client.life  # read before asking the daemon, as for locality sets
    known = _known_session(client, scope, text("a session's name", name))
    if not known:
        raise ObjectNotFound(f"scope {scope!r} has no session {name!r}: see Store.sessions()")
    return handle_in(life, int(known["handle"]))


def session_limits(
    client: _core.Client, scope: str, name: str, ttl: float | None, limit_bytes: int | None
) -> tuple[int, int, int] | None:
    """Return the limits to set on opening a session: TTL, bytes, objects; None: leave them as they are."""
    if len(text("a session's name", name).encode()) > SESSION_MAX_BYTES:
        raise InvalidArgument(f"a session's name is text of at most {SESSION_MAX_BYTES} bytes, but got {name!r}")
    if ttl is not None and not (isinstance(ttl, (int, float, Real)) and 0 <= ttl <= MOST_TTL_SECONDS):
        raise InvalidArgument(f"a time to live is a number of seconds from 0 to {MOST_TTL_SECONDS}, but got {ttl!r}")
    if limit_bytes is not None:
        limit_bytes = whole_number("a session's limit in bytes", limit_bytes)
    if ttl is None and limit_bytes is None:
        return None
    known = _known_session(client, scope, name)
    return (
        math.ceil(ttl) if ttl is not None else known.get("ttl_seconds", DEFAULT_SESSION_TTL if name else 0),
        limit_bytes if limit_bytes is not None else known.get("limit_bytes", 0),
        known.get("limit_objects", 0),
    )


def _sessions(client: _core.Client, scope: str) -> list[dict[str, Any]]:
    return [one for one in json.loads(client.sessions())["sessions"] if one["scope"] == scope]


def _known_session(client: _core.Client, scope: str, name: str) -> dict[str, Any]:
    return next((one for one in _sessions(client, scope) if one["session"] == name), {})


def _info(raw: dict[str, Any], client: _core.Client) -> ObjectInfo:
    try:
        tree = client.tree(bytes.fromhex(raw["id"]))[0]
        return object_info({**raw, "nbytes": raw["nbytes"] + inlined_bytes(tree)}, *described(unpack_tree(tree)))
    except EntrepotError:
        return object_info(raw, "")  # gone in the meantime, or its bytes are lost; the state tells which
