"""Expiry of a lost node's objects.

Three mechanisms, each sufficient by itself: readers ignore objects whose lease has expired; a sweep marks them, and
later deletes the lease, whereupon Kubernetes deletes them; and the lease is owned by its Node, so that all are deleted
with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from entrepot_io.cluster.api import Api
from entrepot_io.cluster.errors import CONFLICT, ClusterRefused, ResourceNotFound
from entrepot_io.cluster.objects import (
    API_VERSION,
    AVAILABLE,
    MANAGED_BY,
    MANAGER,
    Condition,
    LocalObject,
    StoreLease,
    lease_path,
    moment,
    resource_path,
)

GRACE_SECONDS = 600.0
SWEEPER = "entrepot-operator"
_AWAY = Condition(
    AVAILABLE, False, "StoreLost", "the store of the node was not heard of in time; this goes unless it comes back"
)


@dataclass
class Sweep:
    """The actions of a sweep.

    Attributes:
        mark: LocalObjects that no longer count, with their namespaces.
        leases: those to delete: namespace, name, resourceVersion.
        orphans: LocalObjects without any lease, to delete: namespace, name, resourceVersion.
    """

    mark: list[tuple[str, LocalObject]] = field(default_factory=list[tuple[str, LocalObject]])
    leases: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    orphans: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


def plan_sweep(
    leases: Iterable[Mapping[str, Any]],
    objects: Iterable[Mapping[str, Any]],
    now: datetime,
    grace: float = GRACE_SECONDS,
) -> Sweep:
    """Plan what to do about objects whose lease has expired. Pure.

    Args:
        leases: the publishers' Leases, as returned by the API.
        objects: the LocalObjects.
        now: by the clock used to renew the leases.
        grace: seconds between the expiry of a lease and its deletion.
    """
    done = Sweep()
    running_out: dict[tuple[str, str], bool] = {}
    for resource in leases:
        lease, metadata = StoreLease.parse(resource), resource["metadata"]
        namespace = str(metadata.get("namespace") or "")
        running_out[(namespace, lease.name)] = not lease.live(now)
        renewed = lease.renewed or moment(metadata.get("creationTimestamp"))
        if renewed is not None and now > renewed + timedelta(seconds=lease.seconds + grace):
            done.leases.append((namespace, lease.name, str(metadata.get("resourceVersion") or "")))
    for resource in objects:
        one, metadata = LocalObject.parse(resource), resource["metadata"]
        namespace = str(metadata.get("namespace") or "")
        ended = running_out.get((namespace, one.lease))
        if metadata.get("deletionTimestamp"):
            continue
        if ended is None:
            # The lease is written first and deleted last: without one, a deletion was interrupted.
            made = moment(metadata.get("creationTimestamp"))
            if made is not None and now > made + timedelta(seconds=grace):
                done.orphans.append((namespace, str(metadata["name"]), str(metadata.get("resourceVersion") or "")))
        if ended is not False and one.available != _AWAY:
            done.mark.append((namespace, one))
    return done


def sweep(api: Api, namespace: str | None = None, *, grace: float = GRACE_SECONDS, most: int = 500) -> Sweep:
    """Mark and delete what a lost node left behind; returns what was found.

    Args:
        api: the cluster's; needs permission to patch the status of LocalObjects, and to delete them and Leases.
        namespace: where; None: all.
        grace: seconds between the expiry of a lease and its deletion.
        most: maximum number of writes; the rest is left to the next sweep.

    Raises:
        AccessDenied, ClusterRefused, ClusterUnavailable: the API cannot be read or written to.
    """
    leases = api.read_all(lease_path(namespace), labels=f"{MANAGED_BY}={MANAGER}")
    # Streamed: there may be too many objects to hold at once.
    found = api.through(
        lambda objects: plan_sweep(leases, objects, api.now(), grace), resource_path("localobjects", namespace)
    )
    for where, name, version in found.leases[:most]:
        _remove(api, lease_path(where, name), version)
    for where, name, version in found.orphans[: max(0, most - len(found.leases))]:
        _remove(api, resource_path("localobjects", where, name), version)
    for where, one in found.mark[: max(0, most - len(found.leases) - len(found.orphans))]:
        told = _AWAY.following(one.available, api.now())
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "LocalObject",
            "metadata": {"name": one.name},
            "status": {"conditions": [told.to_dict()]},
        }
        try:
            api.apply(f"{resource_path('localobjects', where, one.name)}/status", manifest, SWEEPER)
        except ResourceNotFound:
            continue  # already deleted
    return found


def _remove(api: Api, path: str, version: str) -> None:
    try:
        api.delete(path, version=version)
    except ClusterRefused as error:
        if error.status != CONFLICT:
            raise
        # Renewed since it was read: its store is back.
