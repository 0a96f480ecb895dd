"""``list`` and ``debug_string``: what is in a store, as Plasma's clients are told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from entrepot._client.queries import iter_objects, status_of
from entrepot._codecs.plasma_objects import TREE
from entrepot.errors import ObjectLost, ObjectNotFound
from entrepot.plasma import creations
from entrepot.plasma.object_id import ObjectID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from entrepot import _core

_NANOSECONDS = 1_000_000_000


def entries(
    raw: _core.Client, session: int, address: str, durations: Mapping[bytes, int]
) -> dict[ObjectID, dict[str, Any]]:
    """Return what ``PlasmaClient.list`` does.

    Args:
        raw, session, address: the store.
        durations: of objects that took this client longer to write, how long, in seconds.
    """
    result: dict[ObjectID, dict[str, Any]] = {}
    for record in iter_objects(raw, session, all_sessions=True):
        binary = bytes.fromhex(record["id"])
        try:
            tree, lengths, _ = raw.buffer_lengths(binary)
            if tree != TREE:
                continue
            pins = json.loads(raw.info(binary))["pins"]
        except (ObjectNotFound, ObjectLost):
            continue  # gone since it was listed
        duration = durations.get(binary, 0)
        result[ObjectID(binary)] = {
            "data_size": lengths[0],
            "metadata_size": lengths[1],
            "ref_count": pins,
            "create_time": record["sealed_unix_ns"] // _NANOSECONDS - duration,
            "construct_duration": duration,
            "state": "sealed",
        }
    for binary, creation in creations.at(address):
        result[ObjectID(binary)] = creations.entry(creation)
    return result


def summary(raw: _core.Client) -> str:
    """Return the store's state as text, a line for each number."""
    status = status_of(raw)
    numbers = {
        "capacity bytes": status["capacity_bytes"],
        "used bytes": status["used_bytes"],
        "pinned bytes": status["pinned_bytes"],
        "unsealed bytes": status["unsealed_bytes"],
        "bytes on disk": status["spilled_bytes"],
        "objects": status["objects"],
        "clients": len(status["clients"]),
    }
    return "\n".join(f"{name}: {number}" for name, number in numbers.items())
