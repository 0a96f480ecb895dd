"""Queries to the daemon about its status, objects and sessions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from numbers import Real
from typing import Any

from entrepot import _core
from entrepot._client.arguments import checked_integer, checked_text
from entrepot._client.info import SessionInfo, session_info
from entrepot._client.locality import make_handle
from entrepot._daemon.settings import MAX_TTL_SECONDS, SESSION_MAX_BYTES
from entrepot.errors import InvalidArgument, ObjectNotFound

DEFAULT_SESSION_TTL = 24 * 3600
_LIST_PAGE = 1000


def status_of(client: _core.Client) -> dict[str, Any]:
    """Return capacity, usage and clients."""
    status: dict[str, Any] = json.loads(client.status())
    return status


def iter_objects(
    client: _core.Client, session: int, pattern: str = "*", *, all_sessions: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the objects of a session (or of all sessions, if ``all_sessions``) whose name or ID matches, as raw JSON.

    They are fetched page by page: objects that come or go meanwhile may or may not be included.
    """
    cursor: int | None = 0
    while cursor is not None:
        objects, cursor = list_page(client, session, pattern, cursor, all_sessions=all_sessions)
        yield from objects


def list_page(
    client: _core.Client, session: int, pattern: str, cursor: int, *, all_sessions: bool = False
) -> tuple[list[dict[str, Any]], int | None]:
    """Return up to 1000 objects as :func:`iter_objects` does, and the cursor of the next page; None: it was the last.

    A cursor that the store never gave, or gave before it was restarted, is a place in its directory all the same.
    """
    page = json.loads(client.list(session, all_sessions, pattern, cursor, _LIST_PAGE))
    return page["objects"], page["next_cursor"]


def sessions_of(client: _core.Client, scope: str) -> list[SessionInfo]:
    """Return the sessions of a scope."""
    return [session_info(record) for record in _records_of_scope(client, scope)]


def all_sessions(client: _core.Client) -> list[SessionInfo]:
    """Return the sessions of all scopes."""
    return [session_info(record) for record in session_records(client)]


def session_records(client: _core.Client) -> list[dict[str, Any]]:
    """Return the sessions of all scopes, as raw JSON."""
    records: list[dict[str, Any]] = json.loads(client.sessions())["sessions"]
    return records


def checked_session_name(name: str) -> str:
    """Check that a session can have this name, so that a mistake is not reported as a missing session."""
    if len(checked_text("a session's name", name).encode()) > SESSION_MAX_BYTES or "\0" in name:
        raise InvalidArgument(
            f"a session's name must be text of at most {SESSION_MAX_BYTES} bytes without NUL characters, but got "
            f"{name!r}"
        )
    return name


def session_number(client: _core.Client, scope: str, name: str) -> int:
    """Return the handle of an existing session."""
    life = client.life  # read before asking the daemon, as for locality sets
    record = _session_record(client, scope, checked_session_name(name))
    if not record:
        raise ObjectNotFound(f"scope {scope!r} has no session {name!r}: see Store.sessions()")
    return make_handle(life, int(record["handle"]))


def session_limits(
    client: _core.Client, scope: str, name: str, ttl: float | None, limit_bytes: int | None
) -> tuple[int, int, int] | None:
    """Return the limits to set on opening a session: TTL, bytes, objects; None: leave them as they are."""
    checked_session_name(name)
    if ttl is not None and not (isinstance(ttl, (int, float, Real)) and 0 <= ttl <= MAX_TTL_SECONDS):
        raise InvalidArgument(
            f"a time to live must be a number of seconds from 0 to {MAX_TTL_SECONDS}, but got {ttl!r}"
        )
    if limit_bytes is not None:
        limit_bytes = checked_integer("a session's limit in bytes", limit_bytes)
    if ttl is None and limit_bytes is None:
        return None
    record = _session_record(client, scope, name)
    return (
        math.ceil(ttl) if ttl is not None else record.get("ttl_seconds", DEFAULT_SESSION_TTL if name else 0),
        limit_bytes if limit_bytes is not None else record.get("limit_bytes", 0),
        record.get("limit_objects", 0),
    )


def _records_of_scope(client: _core.Client, scope: str) -> list[dict[str, Any]]:
    return [record for record in session_records(client) if record["scope"] == scope]


def _session_record(client: _core.Client, scope: str, name: str) -> dict[str, Any]:
    return next((record for record in _records_of_scope(client, scope) if record["session"] == name), {})
