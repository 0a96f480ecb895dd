"""Resources in the form in which the API returns them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from entrepot.ids import ObjectID
from entrepot_operator.kubernetes.objects import lease_name, store_node_digest

Resource = dict[str, Any]


@pytest.fixture
def make_store() -> Callable[..., Resource]:
    """``make_store(name, **spec)``: a Store."""

    def make(name: str = "main", created: str = "2030-01-01T12:00:00Z", **spec: Any) -> Resource:
        return {
            "apiVersion": "entrepot.dev/v1alpha1",
            "kind": "Store",
            "metadata": {
                "name": name,
                "namespace": "stores",
                "uid": f"uid-{name}",
                "generation": 1,
                "creationTimestamp": created,
            },
            "spec": {"image": "entrepot:1", "capacity": "8Gi", **spec},
        }

    return make


@pytest.fixture
def make_object() -> Callable[..., Resource]:
    """``make_object(id, node, bytes)``: a LocalObject with all the metadata that an API server returns."""

    def make(oid: str, node: str = "node-a", count: int = 100, store: str = "main", **status: Any) -> Resource:
        spec = {
            "objectID": oid,
            "node": node,
            "store": store,
            "lease": lease_name(store, node),
            "instance": "0f" * 16,
            "generation": 1,
            "bytes": count,
            "scope": "default",
            "session": "run-2030-01-01",
            "type": "arrow",
            "names": [f"orders-{oid[:8]}"],
        }
        fields: Resource = {f"f:{key}": {} for key in spec}
        metadata: Resource = {
            "name": f"{ObjectID(oid)}-{store_node_digest(store, node)}",
            "namespace": "stores",
            "uid": f"uid-{oid}-{node}",
            "resourceVersion": "5",
            "generation": 1,
            "creationTimestamp": "2030-01-01T12:00:00Z",
            "labels": {"app.kubernetes.io/managed-by": "entrepot-publisher", "entrepot.dev/lease": spec["lease"]},
            "ownerReferences": [
                {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": spec["lease"], "uid": f"uid-{node}"}
            ],
            "managedFields": [
                {
                    "manager": "entrepot-publisher",
                    "operation": "Apply",
                    "apiVersion": "entrepot.dev/v1alpha1",
                    "time": "2030-01-01T12:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:labels": {"f:entrepot.dev/lease": {}}}, "f:spec": fields},
                }
            ],
        }
        merged_status = {"state": "InMemory", "conditions": [_available(True, "InMemory")], **status}
        return {
            "apiVersion": "entrepot.dev/v1alpha1",
            "kind": "LocalObject",
            "metadata": metadata,
            "spec": spec,
            "status": merged_status,
        }

    return make


@pytest.fixture
def make_lease() -> Callable[..., Resource]:
    """``make_lease(node, renewed, seconds)``: a publisher's Lease."""

    def make(node: str = "node-a", renewed: str | None = "2030-01-01T12:00:00.000000Z", seconds: int = 60) -> Resource:
        spec: Resource = {"holderIdentity": f"{node}/x", "leaseDurationSeconds": seconds}
        if renewed is not None:
            spec["renewTime"] = renewed
        metadata = {
            "name": lease_name("main", node),
            "namespace": "stores",
            "labels": {"app.kubernetes.io/managed-by": "entrepot-publisher"},
            "annotations": {"entrepot.dev/node": node},
        }
        return {"metadata": metadata, "spec": spec}

    return make


def _available(status: bool, reason: str) -> Resource:
    return {
        "type": "Available",
        "status": str(status),
        "reason": reason,
        "message": "in memory in the node's store",
        "lastTransitionTime": "2030-01-01T12:00:00Z",
    }
