"""Snapshots of DaemonSets, their pods and nodes, reduced to what the operator's decisions need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from entrepot_io.placement.names import STORE_LABEL

from entrepot_operator.controller.children import INSTANCE, MANAGER

Resource = Mapping[str, Any]

# Waiting reasons of a container that persist until somebody intervenes.
_STUCK = frozenset(
    {
        "CrashLoopBackOff",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
_LONGEST = 200


@dataclass(frozen=True)
class DaemonSetSeen:
    """A DaemonSet of a Store.

    Attributes:
        store: the Store it belongs to.
        generation: of its spec.
        observed: the generation that its controller has seen.
        wanted: number of nodes that should have a pod.
        updated: number of nodes whose pod is of the newest template.
    """

    store: str
    generation: int
    observed: int
    wanted: int
    updated: int


@dataclass(frozen=True)
class StorePod:
    """A pod of a Store's DaemonSet.

    Attributes:
        name: of the pod.
        store: the Store it belongs to.
        node: where it runs; empty: not scheduled yet.
        ready: whether its store responds.
        trouble: a persistent problem; empty: none.
    """

    name: str
    store: str
    node: str
    ready: bool
    trouble: str


@dataclass(frozen=True)
class NodeSeen:
    """The part of a node that concerns its label.

    Attributes:
        name: of the node.
        uid: of the node under this name.
        value: of the label of nodes with a store; None: it has none.
        ours: whether the operator wrote it.
    """

    name: str
    uid: str
    value: str | None
    ours: bool


def daemonset(resource: Resource) -> DaemonSetSeen | None:
    """Snapshot of a DaemonSet; None: it belongs to no Store."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    store = (metadata.get("labels") or {}).get(INSTANCE)
    if not store or metadata.get("deletionTimestamp"):
        return None
    return DaemonSetSeen(
        str(store),
        int(metadata.get("generation") or 0),
        int(status.get("observedGeneration") or 0),
        int(status.get("desiredNumberScheduled") or 0),
        int(status.get("updatedNumberScheduled") or 0),
    )


def pod(resource: Resource) -> StorePod | None:
    """Snapshot of a pod; None: it belongs to no Store, or is being deleted."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    store = (metadata.get("labels") or {}).get(INSTANCE)
    if not store or metadata.get("deletionTimestamp"):
        return None
    conditions = {str(one.get("type")): one for one in status.get("conditions") or []}
    return StorePod(
        str(metadata["name"]),
        str(store),
        _node_of(resource),
        (conditions.get("Ready") or {}).get("status") == "True",
        _trouble(status, conditions.get("PodScheduled") or {}),
    )


def node(resource: Resource, manager: str = MANAGER) -> NodeSeen:
    """Snapshot of a node.

    Args:
        resource: as returned by the API.
        manager: the field manager with which this operator writes labels.
    """
    metadata = resource["metadata"]
    ours = any(
        entry.get("manager") == manager and f"f:{STORE_LABEL}" in _labels_of(entry)
        for entry in metadata.get("managedFields") or []
    )
    return NodeSeen(
        str(metadata["name"]), str(metadata.get("uid") or ""), (metadata.get("labels") or {}).get(STORE_LABEL), ours
    )


def _labels_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata: Mapping[str, Any] = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
    return metadata.get("f:labels") or {}


def _node_of(resource: Resource) -> str:
    """The node of a pod. A DaemonSet's pod names it in its affinity before it is bound."""
    spec = resource.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms") or []:
        for field in term.get("matchFields") or []:
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""


def _trouble(status: Mapping[str, Any], scheduled: Mapping[str, Any]) -> str:
    if status.get("phase") == "Failed":
        return _said(status.get("reason") or "Failed", status.get("message"))
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return _said("Unschedulable", scheduled.get("message"))
    containers: Iterable[Mapping[str, Any]] = (
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    )
    for one in containers:
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _STUCK:
            return _said(f"{one.get('name')}: {waiting['reason']}", waiting.get("message"))
    return ""


def _said(reason: str, message: object) -> str:
    text = f"{reason}: {message}" if message else reason
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
