"""What reports say of objects that are lost with a host, or refer to such."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from entrepot.errors import (
    DirectoryUnavailable,
    EntrepotError,
    ObjectLost,
    ObjectNotFound,
    StoreUnavailable,
    Timeout,
)

if TYPE_CHECKING:
    from entrepot._client.info import ObjectInfo
    from entrepot._store.store import Store
    from entrepot.ids import ObjectID


def lost_label(info: ObjectInfo) -> str:
    """Say how much of what an object refers to is lost, with which host, and since when; empty: nothing."""
    if not info.lost:
        return ""
    hosts = {each.host: each.since for each in reversed(info.lost)}
    return f"{info.lost_count} on " + ", ".join(f"{host} since {_when(since)}" for host, since in hosts.items())


def missing_error(store: Store, oid: ObjectID, error: ObjectNotFound) -> EntrepotError:
    """The error for an object that this store does not have: where it was, if only lost hosts had it."""
    try:
        places = store.locate(oid)
    except (StoreUnavailable, DirectoryUnavailable, Timeout):  # no gateway, or the directory is away
        return error
    if not places:
        return error
    live = sorted({place.host for place in places if place.is_live})
    if live:
        return ObjectNotFound(f"{error}; it is on {', '.join(live)}")
    where = " and ".join(f"host {place.host}, lost since {_when(place.lost_since)}" for place in places)
    return ObjectLost(f"object {oid} was on {where}, and there is no other copy")


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
