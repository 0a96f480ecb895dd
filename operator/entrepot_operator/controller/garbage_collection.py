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

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.errors import CONFLICT, ClusterRefused, ResourceNotFound
from entrepot_operator.kubernetes.objects import (
    API_VERSION,
    AVAILABLE,
    MANAGED_BY,
    MANAGER,
    Condition,
    LocalObject,
    StoreLease,
    lease_path,
    parse_time,
    resource_path,
)

GRACE_SECONDS = 600.0
FIELD_MANAGER = "entrepot-operator"
_STORE_LOST = Condition(
    AVAILABLE, False, "StoreLost", "the lease of the node's store expired; this is deleted unless the store returns"
)


@dataclass
class GcPlan:
    """The actions of a sweep.

    Attributes:
        to_mark: LocalObjects that no longer count, with their namespaces.
        leases: those to delete: namespace, name, resourceVersion.
        orphans: LocalObjects without any lease, to delete: namespace, name, resourceVersion.
    """

    to_mark: list[tuple[str, LocalObject]] = field(default_factory=list[tuple[str, LocalObject]])
    leases: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    orphans: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


def plan_gc(
    leases: Iterable[Mapping[str, Any]],
    objects: Iterable[Mapping[str, Any]],
    now: datetime,
    grace: float = GRACE_SECONDS,
) -> GcPlan:
    """Plan what to do about objects whose lease has expired. Pure.

    Args:
        leases: the publishers' Leases, as returned by the API.
        objects: the LocalObjects.
        now: by the clock used to renew the leases.
        grace: seconds between the expiry of a lease and its deletion.
    """
    plan = GcPlan()
    expired_by_lease: dict[tuple[str, str], bool] = {}
    for resource in leases:
        lease, metadata = StoreLease.parse(resource), resource["metadata"]
        namespace = str(metadata.get("namespace") or "")
        expired_by_lease[(namespace, lease.name)] = not lease.is_live(now)
        renewed = lease.renewed or parse_time(metadata.get("creationTimestamp"))
        if renewed is not None and now > renewed + timedelta(seconds=lease.seconds + grace):
            plan.leases.append((namespace, lease.name, str(metadata.get("resourceVersion") or "")))
    for resource in objects:
        local_object, metadata = LocalObject.parse(resource), resource["metadata"]
        namespace = str(metadata.get("namespace") or "")
        expired = expired_by_lease.get((namespace, local_object.lease))
        if metadata.get("deletionTimestamp"):
            continue
        if expired is None:
            # The lease is written first and deleted last: without one, a deletion was interrupted.
            created = parse_time(metadata.get("creationTimestamp"))
            if created is not None and now > created + timedelta(seconds=grace):
                plan.orphans.append((namespace, str(metadata["name"]), str(metadata.get("resourceVersion") or "")))
        if expired is not False and local_object.available != _STORE_LOST:
            plan.to_mark.append((namespace, local_object))
    return plan


def collect_garbage(
    api: Api, namespace: str | None = None, *, grace: float = GRACE_SECONDS, max_writes: int = 500
) -> GcPlan:
    """Mark and delete what a lost node left behind; returns what was found.

    Args:
        api: the cluster's; needs permission to patch the status of LocalObjects, and to delete them and Leases.
        namespace: where; None: all.
        grace: seconds between the expiry of a lease and its deletion.
        max_writes: maximum number of writes; the rest is left to the next sweep.

    Raises:
        AccessDenied, ClusterRefused, ClusterUnavailable: the API cannot be read or written to.
    """
    leases = api.read_all(lease_path(namespace), labels=f"{MANAGED_BY}={MANAGER}")
    # Streamed: there may be too many objects to hold at once.
    plan = api.list_into(
        lambda objects: plan_gc(leases, objects, api.now(), grace), resource_path("localobjects", namespace)
    )
    for object_namespace, name, version in plan.leases[:max_writes]:
        _remove(api, lease_path(object_namespace, name), version)
    for object_namespace, name, version in plan.orphans[: max(0, max_writes - len(plan.leases))]:
        _remove(api, resource_path("localobjects", object_namespace, name), version)
    for object_namespace, local_object in plan.to_mark[: max(0, max_writes - len(plan.leases) - len(plan.orphans))]:
        condition = _STORE_LOST.with_transition_time(local_object.available, api.now())
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "LocalObject",
            "metadata": {"name": local_object.name},
            "status": {"conditions": [condition.to_dict()]},
        }
        try:
            api.apply(
                f"{resource_path('localobjects', object_namespace, local_object.name)}/status", manifest, FIELD_MANAGER
            )
        except ResourceNotFound:
            continue  # already deleted
    return plan


def _remove(api: Api, path: str, version: str) -> None:
    try:
        api.delete(path, version=version)
    except ClusterRefused as error:
        if error.status != CONFLICT:
            raise
        # Renewed since it was read: its store is back.
