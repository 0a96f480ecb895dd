"""Snapshots of DaemonSets, their pods and nodes, reduced to what the operator's decisions need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from entrepot_operator.controller.state.owned_resources import INSTANCE_LABEL, MANAGER
from entrepot_operator.placement.names import STORE_LABEL

Resource = Mapping[str, Any]

# Waiting reasons of a container that persist until somebody intervenes.
_PERSISTENT_REASONS = frozenset(
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
_MAX_PROBLEM_LENGTH = 200


@dataclass(frozen=True)
class DaemonSetSnapshot:
    """A DaemonSet of a Store.

    Attributes:
        store: the Store it belongs to.
        generation: of its spec.
        observed_generation: the generation that its controller has seen.
        desired_nodes: number of nodes that should have a pod.
        updated_nodes: number of nodes whose pod is of the newest template.
    """

    store: str
    generation: int
    observed_generation: int
    desired_nodes: int
    updated_nodes: int


@dataclass(frozen=True)
class StorePodSnapshot:
    """A pod of a Store's DaemonSet.

    Attributes:
        name: of the pod.
        store: the Store it belongs to.
        node: where it runs; empty: not scheduled yet.
        ready: whether its store responds.
        problem: a persistent problem; empty: none.
    """

    name: str
    store: str
    node: str
    ready: bool
    problem: str


@dataclass(frozen=True)
class NodeSnapshot:
    """The part of a node that concerns its label.

    Attributes:
        name: of the node.
        uid: of the node under this name.
        label_value: of the label of nodes with a store; None: it has none.
        is_ours: whether the operator wrote it.
    """

    name: str
    uid: str
    label_value: str | None
    is_ours: bool


def daemonset(resource: Resource) -> DaemonSetSnapshot | None:
    """Snapshot of a DaemonSet; None: it belongs to no Store."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    store = (metadata.get("labels") or {}).get(INSTANCE_LABEL)
    if not store or metadata.get("deletionTimestamp"):
        return None
    return DaemonSetSnapshot(
        str(store),
        int(metadata.get("generation") or 0),
        int(status.get("observedGeneration") or 0),
        int(status.get("desiredNumberScheduled") or 0),
        int(status.get("updatedNumberScheduled") or 0),
    )


def pod(resource: Resource) -> StorePodSnapshot | None:
    """Snapshot of a pod; None: it belongs to no Store, or is being deleted."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    store = (metadata.get("labels") or {}).get(INSTANCE_LABEL)
    if not store or metadata.get("deletionTimestamp"):
        return None
    conditions = {str(condition.get("type")): condition for condition in status.get("conditions") or []}
    return StorePodSnapshot(
        str(metadata["name"]),
        str(store),
        _node_of(resource),
        (conditions.get("Ready") or {}).get("status") == "True",
        _pod_problem(status, conditions.get("PodScheduled") or {}),
    )


def node(resource: Resource, manager: str = MANAGER) -> NodeSnapshot:
    """Snapshot of a node.

    Args:
        resource: as returned by the API.
        manager: the field manager with which this operator writes labels.
    """
    metadata = resource["metadata"]
    is_ours = any(
        entry.get("manager") == manager and f"f:{STORE_LABEL}" in _managed_labels(entry)
        for entry in metadata.get("managedFields") or []
    )
    return NodeSnapshot(
        str(metadata["name"]), str(metadata.get("uid") or ""), (metadata.get("labels") or {}).get(STORE_LABEL), is_ours
    )


def _managed_labels(entry: Mapping[str, Any]) -> Mapping[str, Any]:
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


def _pod_problem(status: Mapping[str, Any], scheduled: Mapping[str, Any]) -> str:
    if status.get("phase") == "Failed":
        return _problem_text(status.get("reason") or "Failed", status.get("message"))
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return _problem_text("Unschedulable", scheduled.get("message"))
    containers: Iterable[Mapping[str, Any]] = (
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    )
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _PERSISTENT_REASONS:
            return _problem_text(f"{container.get('name')}: {waiting['reason']}", waiting.get("message"))
    return ""


def _problem_text(reason: str, message: object) -> str:
    text = f"{reason}: {message}" if message else reason
    return text if len(text) <= _MAX_PROBLEM_LENGTH else text[:_MAX_PROBLEM_LENGTH] + "..."
