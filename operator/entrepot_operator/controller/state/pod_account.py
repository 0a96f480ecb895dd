"""The service account of a namespace's store pods, and what it may do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from entrepot_operator.controller.state import gateway_container, owned_resources
from entrepot_operator.controller.state.owned_resources import (
    COMPONENT_LABEL,
    NAME_LABEL,
    PUBLISHER_ACCOUNT,
    PUBLISHER_CONTAINER,
    STORE_APP,
    Manifest,
    OwnedResource,
)


def pod_account(
    namespace: str, publishing: Iterable[Mapping[str, Any]], clustered: Iterable[Mapping[str, Any]] = ()
) -> list[OwnedResource]:
    """The service account of a namespace's store pods, owned by all of its Stores together, and its permissions.

    A pod has one account; tokens are mounted only in the containers that need one.

    Args:
        namespace: of the Stores.
        publishing: the Stores with publishers, as returned by the API.
        clustered: the Stores whose gateways use a directory in this namespace. If there are none of both, there is
            nothing to own.
    """
    publishing, clustered = list(publishing), list(clustered)
    stores = {str(store["metadata"].get("uid") or ""): store for store in (*publishing, *clustered)}
    if not stores:
        return []
    account = OwnedResource(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{PUBLISHER_ACCOUNT}",
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "automountServiceAccountToken": False,
            "metadata": _account_metadata(namespace, PUBLISHER_ACCOUNT, PUBLISHER_CONTAINER, stores.values()),
        },
    )
    publisher = _role(namespace, PUBLISHER_ACCOUNT, PUBLISHER_CONTAINER, publisher_rules(), publishing)
    gateway = _role(
        namespace, gateway_container.ROLE, gateway_container.NAME, gateway_container.directory_rules(), clustered
    )
    return [account, *publisher, *gateway]


def _role(
    namespace: str, name: str, component: str, rules: list[Manifest], stores: list[Mapping[str, Any]]
) -> list[OwnedResource]:
    """A Role of the pods' account, and its binding; none, if no Store needs it."""
    if not stores:
        return []
    rbac = "rbac.authorization.k8s.io"
    metadata = _account_metadata(namespace, name, component, stores)
    kinds: list[tuple[str, str, Manifest]] = [
        ("roles", "Role", {"rules": rules}),
        (
            "rolebindings",
            "RoleBinding",
            {
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": PUBLISHER_ACCOUNT, "namespace": namespace}],
            },
        ),
    ]
    return [
        OwnedResource(
            f"/apis/{rbac}/v1/namespaces/{namespace}/{plural}/{name}",
            {"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": metadata, **rest},
        )
        for plural, kind, rest in kinds
    ]


def _account_metadata(namespace: str, name: str, component: str, stores: Iterable[Mapping[str, Any]]) -> Manifest:
    ordered = sorted(stores, key=lambda store: str(store["metadata"].get("uid") or ""))
    return {
        "name": name,
        "namespace": namespace,
        # As installed by the manifests; Helm sets managed-by itself.
        "labels": {NAME_LABEL: STORE_APP, COMPONENT_LABEL: component},
        "ownerReferences": [owned_resources.owner_reference(store, controls=False) for store in ordered],
    }


def publisher_rules() -> list[Manifest]:
    """A publisher's permissions in its namespace; the same as in ``manifests/publisher/rbac.yaml``."""
    return [
        {
            "apiGroups": ["entrepot.dev"],
            "resources": ["localobjects"],
            "verbs": ["list", "create", "patch", "delete"],
        },
        {
            "apiGroups": ["entrepot.dev"],
            "resources": ["globalobjects"],
            "verbs": ["get", "list", "create", "patch", "delete"],
        },
        {
            "apiGroups": ["entrepot.dev"],
            "resources": ["localobjects/status", "globalobjects/status"],
            "verbs": ["patch"],
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "patch"]},
    ]
