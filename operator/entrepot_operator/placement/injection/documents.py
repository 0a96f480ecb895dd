"""Injects all pods in a Kubernetes document of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from entrepot.errors import EntrepotError, InvalidArgument

from entrepot_operator.placement import pod_annotations
from entrepot_operator.placement.formats.k8s_models import to_plain
from entrepot_operator.placement.injection import argo
from entrepot_operator.placement.injection.injector import AnyID, Injection, Nodes, WorkloadContext, explain
from entrepot_operator.placement.injection.scoring import LocationMap
from entrepot_operator.placement.names import (
    ANNOTATIONS_MAX_BYTES,
    FIRST_ORDINAL,
    PARTITIONED,
    PARTITIONS,
    REQUIRES,
    USER_ANNOTATIONS,
    ClusterConfig,
)
from entrepot_operator.placement.warnings import PlacementWarning

# Path of the pod template in each kind.
POD_TEMPLATE_PATHS: dict[str, tuple[str, ...]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


@dataclass
class Document:
    """A document with its pods injected.

    Attributes:
        content: the document.
        pods: the injection of each pod, by its location (``"Job/train"``, ``"Workflow/nightly/score"``).
    """

    content: Any
    pods: dict[str, Injection] = field(default_factory=dict[str, Injection])


@dataclass(frozen=True)
class DocumentRequest:
    """Parameters for all pods of a document; the attributes are the arguments of ``inject_document``."""

    locations: LocationMap
    required: tuple[str, ...] | None
    partitioned: tuple[str, ...] | None
    nodes: Nodes | None
    site: ClusterConfig | None
    strict: bool

    def inject_pod(self, pod: dict[str, Any], context: WorkloadContext) -> Injection:
        """Inject one pod, after annotating it with the requested objects, so that they are known when the pod is
        created.
        """
        if self.required is not None or self.partitioned is not None:
            metadata = pod["metadata"] = _optional_child(pod, "metadata")
            annotations = metadata["annotations"] = _optional_child(metadata, "annotations")
            for key, values in ((REQUIRES, self.required), (PARTITIONED, self.partitioned)):
                if values is not None:
                    annotations[key] = ",".join(values)
                    if len(annotations[key]) > ANNOTATIONS_MAX_BYTES // 2:
                        raise InvalidArgument(
                            f"{len(values)} object IDs are too many for the annotation {key}: name a collection instead"
                        )
        return explain(
            pod, None, self.locations, nodes=self.nodes, site=self.site, strict=self.strict, context=context
        )  # fmt: skip


def inject_document(
    document: Any,
    locations: LocationMap,
    *,
    required: Iterable[AnyID] | None = None,
    partitioned: Iterable[AnyID] | None = None,
    nodes: Nodes | None = None,
    site: ClusterConfig | None = None,
    strict: bool = False,
    only: str | None = None,
) -> Document:
    """A copy of a Kubernetes document with all its pods injected.

    Pods, Deployments, ReplicaSets, ReplicationControllers, StatefulSets, DaemonSets (mounts and environment only),
    Jobs, CronJobs, PodTemplates, Lists, and Argo's Workflow, WorkflowTemplate, ClusterWorkflowTemplate and
    CronWorkflow; other kinds are returned unchanged. In an Indexed Job and a StatefulSet, partitioned objects are
    distributed over the pods, each of which finds its part when it is created.

    Args:
        document: as dictionaries and lists.
        locations, nodes, site, strict: as for ``inject``.
        required: first written into the pods' annotation ``entrepot.dev/requires``; None: keep what is there.
        partitioned: the same for ``entrepot.dev/partitioned``.
        only: ``"KIND/NAME"``: inject only this workload.

    Raises:
        As ``inject``; the message begins with the kind and name of the document.
    """
    request = DocumentRequest(
        locations,
        None if required is None else pod_annotations.parse_ids(required, "required"),
        None if partitioned is None else pod_annotations.parse_ids(partitioned, "partitioned"),
        nodes,
        site,
        strict,
    )
    result = Document(to_plain(document) if isinstance(document, Mapping) else document)
    if isinstance(result.content, dict):
        _inject(result.content, request, only, result)
    return result


def workload_name(document: Mapping[str, Any]) -> str:
    """Kind and name of a document, for messages.

    >>> workload_name({"kind": "Job", "metadata": {"generateName": "train-"}})
    'Job/train-'
    """
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return f"{document.get('kind') or '?'}/{metadata.get('name') or metadata.get('generateName') or '?'}"


def _inject(document: dict[str, Any], request: DocumentRequest, only: str | None, result: Document) -> None:
    kind = document.get("kind")
    if not isinstance(kind, str):
        return
    if kind == "List" or (kind.endswith("List") and "items" in document):
        items = document.get("items")
        for item in items if isinstance(items, list) else []:
            if isinstance(item, dict):
                _inject(item, request, only, result)
        return
    workload = workload_name(document)
    if only is not None and only.lower() != workload.lower():
        return
    try:
        if kind in argo.WORKFLOW_KINDS:
            result.pods.update(argo.inject_workflow(document, workload, request.inject_pod))
        elif kind in POD_TEMPLATE_PATHS:
            result.pods[workload] = _inject_template(document, request)
    except EntrepotError as error:
        raise type(error)(f"{workload}: {error}") from error


def _inject_template(document: dict[str, Any], request: DocumentRequest) -> Injection:
    kind, path = document["kind"], POD_TEMPLATE_PATHS[document["kind"]]
    holder: dict[str, Any] = document
    for step in path[:-1]:
        holder = _required_child(holder, step, kind)
    pod = _required_child(holder, path[-1], kind) if path else document
    partitions = _annotate_partitions(document, kind, pod, request)
    injection = request.inject_pod(pod, WorkloadContext(may_be_placed=kind != "DaemonSet"))
    if path:
        holder[path[-1]] = injection.pod
    else:
        document.clear()
        document.update(injection.pod)
    injection.pods = injection.pods or partitions
    if path:
        misplaced = sorted(
            set(USER_ANNOTATIONS) & set(_optional_child(_optional_child(document, "metadata"), "annotations"))
        )
        if misplaced:
            text = f"{misplaced[0]} is set on the {kind}: pods do not inherit it, set it on the pod template"
            injection.reasons.append(PlacementWarning("misplaced", text))
    return injection


def _annotate_partitions(
    document: dict[str, Any], kind: str, pod: dict[str, Any], request: DocumentRequest
) -> int | None:
    """Annotate an indexed set with the number of pods that partitioned objects are distributed over; returns it."""
    annotations = _optional_child(_optional_child(pod, "metadata"), "annotations")
    if request.partitioned is None and PARTITIONED not in annotations:
        return None
    spec = _optional_child(document, "spec")
    if kind == "CronJob":
        spec = _optional_child(spec["jobTemplate"], "spec")
    first_ordinal = 0
    if kind in ("Job", "CronJob") and spec.get("completionMode") == "Indexed":
        pod_count = spec.get("completions")
    elif kind == "StatefulSet":
        pod_count = spec.get("replicas", 1)
        first_ordinal = _optional_child(spec, "ordinals").get("start", 0)
    else:
        return None
    if type(pod_count) is not int or pod_count < 1 or type(first_ordinal) is not int:
        return None
    metadata = pod["metadata"] = _optional_child(pod, "metadata")
    annotations = metadata["annotations"] = _optional_child(metadata, "annotations")
    annotations[PARTITIONS] = str(pod_count)
    if first_ordinal:
        annotations[FIRST_ORDINAL] = str(first_ordinal)
    return pod_count


def _optional_child(holder: dict[str, Any], key: str) -> dict[str, Any]:
    child = holder.get(key)
    if child is None:
        return {}
    if not isinstance(child, dict):
        raise InvalidArgument(f"{key} must be a mapping, but got {type(child).__name__} {child!r}")
    return child


def _required_child(holder: dict[str, Any], key: str, kind: str) -> dict[str, Any]:
    child = holder.get(key)
    if not isinstance(child, dict):
        raise InvalidArgument(f"a {kind} must have {'.'.join(POD_TEMPLATE_PATHS[kind])}, but its {key} is {child!r}")
    return child
