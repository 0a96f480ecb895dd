"""Metadata of objects, from what the daemon knows and from their trees."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from entrepot import _core
from entrepot._client.info import ObjectInfo, object_info
from entrepot._client.lost_marks import read_mark
from entrepot._client.queries import iter_objects
from entrepot._collections.metadata import may_refer, summarize
from entrepot.codec import inlined_bytes
from entrepot.errors import EntrepotError
from entrepot.ids import ObjectID


def info_of(client: _core.Client, oid: ObjectID) -> ObjectInfo:
    """Return the metadata of one object."""
    return _to_object_info(json.loads(client.info(oid.binary)), client)


def list_objects(client: _core.Client, session: int, pattern: str) -> list[ObjectInfo]:
    """Return all objects of a session whose name or ID matches."""
    with _collector_paused():
        return [_to_object_info(record, client) for record in iter_objects(client, session, pattern)]


def list_objects_everywhere(client: _core.Client, session: int, pattern: str, scope: str | None) -> list[ObjectInfo]:
    """Return the objects of all sessions (of one scope, unless that is None) whose name or ID matches."""
    records = iter_objects(client, session, pattern, all_sessions=True)
    with _collector_paused():
        return [_to_object_info(record, client) for record in records if scope is None or record["scope"] == scope]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python's cycle collector from looking through a long list again and again while it grows."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _to_object_info(raw: dict[str, Any], client: _core.Client) -> ObjectInfo:
    oid = ObjectID(raw["id"])
    mark = None
    try:
        tree, buffer_bytes, _ = client.tree(oid.binary)
        type_name, collection, member_of = summarize(tree)
        if may_refer(tree, buffer_bytes):
            mark = read_mark(client, raw["scope"], raw["session"], oid, raw["generation"])
    except EntrepotError:
        return object_info(raw, oid, "")  # gone in the meantime, or its bytes are lost; the state tells which
    raw["nbytes"] += inlined_bytes(tree)
    return object_info(raw, oid, type_name, collection, member_of, mark)
