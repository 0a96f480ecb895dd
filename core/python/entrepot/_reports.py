"""What the daemon says about itself, its objects and its sessions, asked for and read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from entrepot import _core
from entrepot._collection_tree import described
from entrepot._info import ObjectInfo, SessionInfo, object_info, session_info
from entrepot._settings import SESSION_MAX_BYTES
from entrepot.codec import unpack_tree
from entrepot.errors import EntrepotError, InvalidArgument, ObjectNotFound
from entrepot.ids import ObjectID

DEFAULT_SESSION_TTL = 24 * 3600
_LIST_PAGE = 1000


def status_of(client: _core.Client) -> dict[str, Any]:
    """Capacity, use, clients."""
    status: dict[str, Any] = json.loads(client.status())
    return status


def info_of(client: _core.Client, oid: ObjectID) -> ObjectInfo:
    """Everything about one object."""
    return _info(json.loads(client.info(oid.binary)), client)


def listing(
    client: _core.Client, session: int, pattern: str = "*", *, everywhere: bool = False
) -> Iterator[dict[str, Any]]:
    """The objects of a session (or of all of them, everywhere) whose name or ID matches, as the daemon tells of them.

    They are asked for by the page: what comes and goes meanwhile may be among them or not.
    """
    cursor: int | None = 0
    while cursor is not None:
        page = json.loads(client.list(session, everywhere, pattern, cursor, _LIST_PAGE))
        yield from page["objects"]
        cursor = page["next_cursor"]


def list_objects(client: _core.Client, session: int, pattern: str) -> list[ObjectInfo]:
    """All objects of a session whose name or ID matches."""
    return [_info(one, client) for one in listing(client, session, pattern)]


def sessions_of(client: _core.Client, scope: str) -> list[SessionInfo]:
    """The sessions of a scope."""
    return [session_info(one) for one in _sessions(client, scope)]


def session_number(client: _core.Client, scope: str, name: str) -> int:
    """The daemon's number of a session that is there."""
    known = _known_session(client, scope, name)
    if not known:
        raise ObjectNotFound(f"scope {scope!r} has no session {name!r}: see Store.sessions()")
    return int(known["handle"])


def session_limits(
    client: _core.Client, scope: str, name: str, ttl: float | None, limit_bytes: int | None
) -> tuple[int, int, int] | None:
    """The limits to set when a session is opened: time to live, bytes, objects; None: they stay as they are."""
    if not isinstance(name, str) or len(name.encode("utf-8", "surrogatepass")) > SESSION_MAX_BYTES:
        raise InvalidArgument(f"a session's name is text of at most {SESSION_MAX_BYTES} bytes, but got {name!r}")
    if ttl is not None and not (ttl >= 0 and math.isfinite(ttl)):
        raise InvalidArgument(f"a time to live is a number of seconds, 0 or more, but got {ttl!r}")
    if limit_bytes is not None and limit_bytes < 0:
        raise InvalidArgument(f"a limit is a number of bytes, 0 or more, but got {limit_bytes!r}")
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
        root = unpack_tree(client.tree(bytes.fromhex(raw["id"]))[0])
        return object_info(raw, *described(root))
    except EntrepotError:
        return object_info(raw, "")  # it went meanwhile, or its bytes are lost; the state says so
