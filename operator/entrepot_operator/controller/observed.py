"""What the operator keeps of DaemonSets, their pods and nodes: only what it decides by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from entrepot_io.placement.names import STORE_LABEL

from entrepot_operator.controller.children import INSTANCE, MANAGER

Resource = Mapping[str, Any]

# Reasons of a container that waits and will go on waiting until somebody does something.
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
        store: whose it is.
        generation: of its spec.
        observed: the generation that its controller has seen.
        wanted: nodes that are to have a pod.
        updated: nodes whose pod is of the newest template.
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
        store: whose it is.
        node: where it runs; empty: nowhere yet.
        ready: whether its store answers.
        trouble: what keeps it from that; empty: nothing that would last.
    """

    name: str
    store: str
    node: str
    ready: bool
    trouble: str


@dataclass(frozen=True)
class NodeSeen:
    """A node, as far as its label is concerned.

    Attributes:
        name: of the node.
        uid: of this life of the name.
        value: of the label of nodes with a store; None: it has none.
        ours: whether the operator wrote it.
    """

    name: str
    uid: str
    value: str | None
    ours: bool


def daemonset(resource: Resource) -> DaemonSetSeen | None:
    """What is kept of a DaemonSet; None: it is of no Store."""
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
    """What is kept of a pod; None: it is of no Store, or going."""
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
    """What is kept of a node.

    Args:
        resource: as the API has it.
        manager: the field manager by which this operator writes labels.
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
    """The node of a pod. A pod of a DaemonSet names it in its affinity before it is bound."""
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
