"""Injects all pods in a Kubernetes document of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from entrepot.errors import EntrepotError, InvalidArgument

from entrepot_io.placement import argo, asked
from entrepot_io.placement.injecting import AnyID, Injection, Nodes, Surroundings, explain
from entrepot_io.placement.models import to_plain
from entrepot_io.placement.names import (
    ANNOTATIONS_MAX_BYTES,
    ASKED,
    FIRST_ORDINAL,
    PARTITIONED,
    PARTITIONS,
    REQUIRES,
    Site,
)
from entrepot_io.placement.reasons import Reason
from entrepot_io.placement.weighing import Locations

# Path of the pod template in each kind.
TEMPLATES: dict[str, tuple[str, ...]] = {
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
class Request:
    """Parameters for all pods of a document; the attributes are the arguments of ``inject_document``."""

    locations: Locations
    required: tuple[str, ...] | None
    partitioned: tuple[str, ...] | None
    nodes: Nodes | None
    site: Site | None
    strict: bool

    def run(self, pod: dict[str, Any], around: Surroundings) -> Injection:
        """Inject one pod, after annotating it with the requested objects, so that they are known when the pod is
        created.
        """
        if self.required is not None or self.partitioned is not None:
            metadata = pod["metadata"] = _child(pod, "metadata")
            annotations = metadata["annotations"] = _child(metadata, "annotations")
            for key, values in ((REQUIRES, self.required), (PARTITIONED, self.partitioned)):
                if values is not None:
                    annotations[key] = ",".join(values)
                    if len(annotations[key]) > ANNOTATIONS_MAX_BYTES // 2:
                        raise InvalidArgument(
                            f"{len(values)} object IDs are too many for the annotation {key}: name a collection instead"
                        )
        return explain(
            pod, None, self.locations, nodes=self.nodes, site=self.site, strict=self.strict, around=around
        )  # fmt: skip


def inject_document(
    document: Any,
    locations: Locations,
    *,
    required: Iterable[AnyID] | None = None,
    partitioned: Iterable[AnyID] | None = None,
    nodes: Nodes | None = None,
    site: Site | None = None,
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
    request = Request(
        locations,
        None if required is None else asked.ids(required, "required"),
        None if partitioned is None else asked.ids(partitioned, "partitioned"),
        nodes,
        site,
        strict,
    )
    done = Document(to_plain(document) if isinstance(document, Mapping) else document)
    if isinstance(done.content, dict):
        _inject(done.content, request, only, done)
    return done


def workload_name(document: Mapping[str, Any]) -> str:
    """Kind and name of a document, for messages.

    >>> workload_name({"kind": "Job", "metadata": {"generateName": "train-"}})
    'Job/train-'
    """
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    return f"{document.get('kind') or '?'}/{metadata.get('name') or metadata.get('generateName') or '?'}"


def _inject(document: dict[str, Any], request: Request, only: str | None, done: Document) -> None:
    kind = document.get("kind")
    if not isinstance(kind, str):
        return
    if kind == "List" or (kind.endswith("List") and "items" in document):
        items = document.get("items")
        for item in items if isinstance(items, list) else []:
            if isinstance(item, dict):
                _inject(item, request, only, done)
        return
    named = workload_name(document)
    if only is not None and only.lower() != named.lower():
        return
    try:
        if kind in argo.WORKFLOWS:
            done.pods.update(argo.inject_workflow(document, named, request.run))
        elif kind in TEMPLATES:
            done.pods[named] = _inject_template(document, request)
    except EntrepotError as error:
        raise type(error)(f"{named}: {error}") from error


def _inject_template(document: dict[str, Any], request: Request) -> Injection:
    kind, path = document["kind"], TEMPLATES[document["kind"]]
    holder: dict[str, Any] = document
    for step in path[:-1]:
        holder = _found(holder, step, kind)
    pod = _found(holder, path[-1], kind) if path else document
    partitions = _deal(document, kind, pod, request)
    injection = request.run(pod, Surroundings(placed=kind != "DaemonSet"))
    if path:
        holder[path[-1]] = injection.pod
    else:
        document.clear()
        document.update(injection.pod)
    injection.pods = injection.pods or partitions
    if path:
        misplaced = sorted(set(ASKED) & set(_child(_child(document, "metadata"), "annotations")))
        if misplaced:
            text = f"{misplaced[0]} stands on the {kind}: pods do not inherit it, write it on the pod template"
            injection.reasons.append(Reason("misplaced", text))
    return injection


def _deal(document: dict[str, Any], kind: str, pod: dict[str, Any], request: Request) -> int | None:
    """Annotate an indexed set with the number of pods that partitioned objects are distributed over; returns it."""
    annotations = _child(_child(pod, "metadata"), "annotations")
    if request.partitioned is None and PARTITIONED not in annotations:
        return None
    spec = _child(document, "spec")
    if kind == "CronJob":
        spec = _child(spec["jobTemplate"], "spec")
    first = 0
    if kind in ("Job", "CronJob") and spec.get("completionMode") == "Indexed":
        pods = spec.get("completions")
    elif kind == "StatefulSet":
        pods = spec.get("replicas", 1)
        first = _child(spec, "ordinals").get("start", 0)
    else:
        return None
    if type(pods) is not int or pods < 1 or type(first) is not int:
        return None
    metadata = pod["metadata"] = _child(pod, "metadata")
    annotations = metadata["annotations"] = _child(metadata, "annotations")
    annotations[PARTITIONS] = str(pods)
    if first:
        annotations[FIRST_ORDINAL] = str(first)
    return pods


def _child(holder: dict[str, Any], key: str) -> dict[str, Any]:
    child = holder.get(key)
    if child is None:
        return {}
    if not isinstance(child, dict):
        raise InvalidArgument(f"{key} is a mapping, but got {type(child).__name__} {child!r}")
    return child


def _found(holder: dict[str, Any], key: str, kind: str) -> dict[str, Any]:
    child = holder.get(key)
    if not isinstance(child, dict):
        raise InvalidArgument(f"a {kind} has {'.'.join(TEMPLATES[kind])}, but its {key} is {child!r}")
    return child
