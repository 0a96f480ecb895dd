"""The state of a store as the page gets it."""

from __future__ import annotations

from typing import Any

from entrepot_ui.watch.memory import memory_parts, sharing
from entrepot_ui.watch.rows import GROUPINGS
from entrepot_ui.watch.watcher import View

_NUMBERS = (
    "objects",
    "names",
    "sessions",
    "capacity_bytes",
    "used_bytes",
    "pinned_bytes",
    "leased_bytes",
    "warm_bytes",
    "spilled_bytes",
    "waiting",
    "deferred_frees",
    "drops",
    "drops_bytes",
    "uptime_seconds",
    "incarnation",
)
MAX_CLIENTS = 500


def overview(view: View, by: str) -> dict[str, Any]:
    """State, memory, groups, clients and streams.

    Args:
        view: what is known of the store.
        by: how objects are grouped.

    Raises:
        InvalidArgument: objects cannot be grouped by this.
    """
    groups = view.snapshot.groups(by)
    result: dict[str, Any] = {
        "state": view.state,
        "reason": view.reason,
        "answered_at": view.answered_at,
        "groupings": list(GROUPINGS),
        "groups": groups,
        "listed_at": view.snapshot.taken_at,
        "truncated": view.snapshot.truncated,
        "sharing": sharing(view.details),
        "status": None,
    }
    status = view.status
    if status is None:
        return result
    spill = status["spill"]
    clients = [client for client in status["clients"] if client["connected"] or client["quarantined"]]
    return result | {
        "status": {key: status[key] for key in _NUMBERS},
        "store": {key: status[key] for key in ("instance", "host", "version", "pid")},
        "rates": view.rates,
        "memory": memory_parts(status),
        "spill": {key: spill[key] for key in sorted(spill) if key not in ("folders", "key_id")},
        "clients": clients[:MAX_CLIENTS],
        "more_clients": max(0, len(clients) - MAX_CLIENTS),
        "reservations": status["reservations"],
        "streams": status["streams"],
        "gateway": status["gateway"],
    }
