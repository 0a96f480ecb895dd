"""``entrepot ls --streams``, and the streams in ``entrepot status``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from entrepot._cli.common import human_bytes, printable, table

_COLUMNS = ["stream", "session", "state", "chunks", "bytes", "written", "writers", "groups and readers"]


def matching(
    streams: Iterable[dict[str, Any]] | None, pattern: str, scope: str | None, session: str | None
) -> list[dict[str, Any]]:
    """Return the streams of a store's status whose names match a glob.

    Args:
        streams: ``status()["streams"]``; None: the daemon is older, and has none.
        pattern: glob over their names.
        scope, session: only those of this scope and this session; None: of all.
    """
    return [
        stream
        for stream in streams or ()
        if fnmatchcase(stream["name"], pattern)
        and (scope is None or stream.get("scope") == scope)
        and (session is None or stream.get("session_name") == session)
    ]


def stream_table(streams: Iterable[dict[str, Any]]) -> str:
    """Return what is in each stream, and who writes and reads it."""
    return table([_row(stream) for stream in streams], _COLUMNS)


def format_streams(streams: Sequence[dict[str, Any]]) -> str:
    """Return the table, followed by why streams failed and by what they wait for."""
    notes = []
    for stream in streams:
        if stream["failure"]:
            notes.append(f"{printable(stream['name'])} failed: {printable(stream['failure'])}")
        elif stream["writers_waiting"]:
            behind = ", ".join(
                f"group {printable(group['name'])} has not consumed {group['not_consumed']}"
                for group in stream["groups"]
                if group["not_consumed"]
            )
            waiting = stream["writers_waiting"]
            notes.append(
                f"{printable(stream['name'])} is full: {waiting} {'writer waits' if waiting == 1 else 'writers wait'}; "
                f"{behind or 'no group reads it'}"
            )
    return "\n".join([stream_table(streams), *notes])


def print_streams(streams: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print them for people, or as a JSON list."""
    print(json.dumps(streams, indent=2) if as_json else format_streams(streams))


def _row(stream: dict[str, Any]) -> list[str]:
    limit = stream.get("capacity_bytes", 0)  # not in the status of an older daemon
    nbytes = human_bytes(stream["bytes"]) if "bytes" in stream else ""
    return [
        stream["name"],
        stream["session"],
        stream["state"],
        f"{stream['chunks']} of {stream['capacity']}",
        f"{nbytes} of {human_bytes(limit)}" if limit else nbytes,
        str(stream["appended"]),
        f"{stream['writers_open']} open, {stream['writers_closed']} of {stream['writers']} closed",
        ", ".join(f"{group['name']} {group['readers']}" for group in stream["groups"]),
    ]
