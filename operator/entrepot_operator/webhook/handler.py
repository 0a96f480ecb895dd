"""Decides about one pod, as a pure function of the pod and the view of the cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entrepot.errors import EntrepotError

from entrepot_operator.placement import pod_annotations
from entrepot_operator.placement.injection import pod_validation, record
from entrepot_operator.placement.injection.injector import Injection, WorkloadContext, explain
from entrepot_operator.placement.names import ANNOTATIONS_MAX_BYTES, INJECTED, ClusterConfig
from entrepot_operator.placement.warnings import PlacementWarning
from entrepot_operator.webhook.cluster_view import ClusterView
from entrepot_operator.webhook.json_patch import Operation, create_patch
from entrepot_operator.webhook.metrics import Result

NOT_SYNCED = "not-synced"
INVALID = "invalid"
TOO_LARGE = "too-large"


@dataclass(frozen=True)
class Decision:
    """The decision about one pod.

    Attributes:
        result: how it is counted.
        patch: the changes to the pod.
        warnings: what to report: problems, and why the pod is unchanged.
    """

    result: Result
    patch: list[Operation] = field(default_factory=list[Operation])
    warnings: list[PlacementWarning] = field(default_factory=list[PlacementWarning])


def decide(pod: dict[str, Any], view: ClusterView, cluster_config: ClusterConfig, *, mounts: bool = True) -> Decision:
    """Decide about one pod, without modifying it.

    Args:
        pod: as it would be stored.
        view: where objects are.
        cluster_config: configuration of the stores.
        mounts: whether the store's socket may be mounted; where hostPath volumes are forbidden, a pod with it would be
            rejected.
    """
    if not view.synced:
        return _unchanged("unknown", NOT_SYNCED, "object locations are not known: the pod is left unchanged")
    try:
        pod_validation.validate_pod(pod)
        annotations: Mapping[str, Any] = (pod.get("metadata") or {}).get("annotations") or {}
        requests = pod_annotations.parse_annotations(annotations)
        object_ids = dict.fromkeys((*requests.requires, *requests.partitioned))
        if record.is_injected(pod) and _had_more_objects(annotations[INJECTED], len(object_ids)):
            return Decision("unchanged")
        context = WorkloadContext(may_be_placed=not _is_of_daemon_set(pod), mounts=mounts)
        injection = explain(
            pod, None, view.locations(object_ids), nodes=view.nodes(), site=cluster_config, context=context
        )
    except EntrepotError as error:
        return _unchanged("invalid", INVALID, f"{error}: the pod is left unchanged")
    if record.is_injected(pod) and injection.inputs.unknown and not injection.inputs.located:
        # It was injected from another source of locations, such as the store itself.
        return Decision("unchanged", warnings=injection.problems)
    after: Mapping[str, Any] = injection.pod["metadata"].get("annotations") or {}
    size = sum(len(str(key).encode()) + len(str(value).encode()) for key, value in after.items())
    if size > ANNOTATIONS_MAX_BYTES and INJECTED in after:
        text = (
            f"with the injection record, its annotations would total {size} bytes; the limit is {ANNOTATIONS_MAX_BYTES}"
        )
        return _unchanged("invalid", TOO_LARGE, f"{text}: the pod is left unchanged; require a collection instead")
    patch = create_patch(pod, injection.pod)
    return Decision("injected" if patch else "unchanged", patch, _collect_warnings(injection, requests, mounts))


def _collect_warnings(
    injection: Injection, requests: pod_annotations.PodAnnotations, mounts: bool
) -> list[PlacementWarning]:
    warnings = injection.problems
    if requests.mounts and not mounts:
        warnings.append(
            PlacementWarning(
                "no-mounts", "hostPath volumes are forbidden here, so the store's socket is not mounted in the pod"
            )
        )
    return warnings


def _had_more_objects(text: Any, count: int) -> bool:
    """Whether an earlier injection knew of more objects than the annotations name, as the orchestrators' plugins do."""
    try:
        return bool(json.loads(text)["objects"]["required"] > count)
    except (ValueError, TypeError, KeyError):
        return False  # parsing the record reports what is wrong with it


def _is_of_daemon_set(pod: Mapping[str, Any]) -> bool:
    owners = (pod.get("metadata") or {}).get("ownerReferences") or []
    return any(isinstance(owner, Mapping) and owner.get("kind") == "DaemonSet" for owner in owners)


def _unchanged(result: Result, code: str, text: str) -> Decision:
    return Decision(result, warnings=[PlacementWarning(code, text)])
