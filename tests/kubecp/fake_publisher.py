"""Leases and LocalObjects of stores that do not run, in the API as publishers write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from entrepot.ids import ObjectID
from entrepot_operator.kubernetes.objects import (
    API_VERSION,
    LEASE_LABEL,
    MANAGED_BY,
    MANAGER,
    NODE_ANNOTATION,
    LocalObject,
    lease_name,
    lease_path,
    resource_path,
)
from kubecp_api import ClusterApi

INSTANCE = "0f" * 16
STORE = "main"
NOW = timedelta()


def renew(plane: ClusterApi, namespace: str, node: str, seconds: int = 3600, *, ago: timedelta = NOW) -> None:
    """Renew the Lease of a node's store.

    Args:
        seconds: duration of the Lease.
        ago: how long ago it was renewed.
    """
    lease = lease_name(STORE, node)
    manifest = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": lease, "labels": {MANAGED_BY: MANAGER}, "annotations": {NODE_ANNOTATION: node}},
        "spec": {
            "holderIdentity": f"{node}/{INSTANCE}",
            "leaseDurationSeconds": seconds,
            "renewTime": (datetime.now(timezone.utc) - ago).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }
    plane.apply(lease_path(namespace, lease), manifest)


def publish(plane: ClusterApi, namespace: str, oid: str, node: str, nbytes: int = 100) -> None:
    """Publish that a node's store holds an object; valid as long as that node's Lease."""
    lease = lease_name(STORE, node)
    local_object = LocalObject(ObjectID(oid), node, STORE, lease, INSTANCE, 1, nbytes, "default", "")
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "LocalObject",
        "metadata": {"name": local_object.name, "labels": {MANAGED_BY: MANAGER, LEASE_LABEL: lease}},
        "spec": local_object.spec(),
    }
    plane.apply(resource_path("localobjects", namespace, local_object.name), manifest)
