"""``inject``: makes a pod prefer the nodes that hold its inputs, and gives it access to the store there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

from entrepot_operator.placement import pod_annotations
from entrepot_operator.placement.formats import k8s_models
from entrepot_operator.placement.injection import affinity, pod_validation, record, scoring
from entrepot_operator.placement.injection.scoring import LocatedInputs, LocationMap, NodeScore
from entrepot_operator.placement.names import (
    INJECTED,
    JOB_INDEX,
    LOCALITY,
    POD_INDEX,
    STATEFUL_POD,
    STORE,
    ClusterConfig,
)
from entrepot_operator.placement.nodes import Constraints, Node
from entrepot_operator.placement.warnings import PlacementConflict, PlacementWarning, summarize_names

P = TypeVar("P")
AnyID = str | bytes | ObjectID
Nodes = Mapping[str, Node | Mapping[str, str]]

# Compared with the best node's 100: a store without any of the inputs counts, but less than the inputs.
STORE_WEIGHT = 50
MAX_RECORDED_NODES = 10  # nodes in the record


@dataclass(frozen=True)
class WorkloadContext:
    """Properties that a pod gets from its workload.

    Attributes:
        volumes: names of volumes in addition to its own.
        annotations: inherited ones; its own take precedence.
        created_entries: entries that are created in the pod although they only repeat the workload's.
        may_be_placed: whether the scheduler may choose its node; false for a DaemonSet, whose pods run on every node.
        mounts: whether the store's directory may be mounted; false where hostPath volumes are forbidden.
    """

    volumes: Collection[str] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    created_entries: Collection[str] = ()
    may_be_placed: bool = True
    mounts: bool = True


@dataclass
class Injection:
    """The result of one injection.

    Attributes:
        pod: the pod, of the same kind as the argument.
        inputs: where its inputs are.
        pulls: nodes and zones that attract it.
        required: nodes that it is bound to; empty: none.
        store: how a store is required: ``"preferred"``, ``"required"`` or ``"off"``.
        ordinal, pods: which part of the partitioned objects it reads; None: all of them.
        reasons: unexpected outcomes, and why.
        added: exactly what was added.
    """

    pod: Any
    inputs: LocatedInputs
    pulls: list[NodeScore] = field(default_factory=list[NodeScore])
    required: list[str] = field(default_factory=list[str])
    store: str = "off"
    ordinal: int | None = None
    pods: int | None = None
    reasons: list[PlacementWarning] = field(default_factory=list[PlacementWarning])
    added: record.InjectionDiff = field(default_factory=record.InjectionDiff)

    @property
    def problems(self) -> list[PlacementWarning]:
        """The reasons that need attention."""
        return [warning for warning in self.reasons if warning.is_problem]


def inject(
    pod: P,
    required: Iterable[AnyID] | None,
    locations: LocationMap,
    *,
    partitioned: Iterable[AnyID] | None = None,
    nodes: Nodes | None = None,
    site: ClusterConfig | None = None,
    strict: bool = False,
) -> P:
    """A copy of a pod that prefers the nodes that hold the objects it reads. Does no I/O.

    The pod's annotations (``entrepot.dev/...``, docs/kubernetes.md) add to this: further objects that it reads, whether
    it may run elsewhere, which containers use the store. The user's own node affinity is kept, term by term;
    requirements are added to each of its terms. ``spec.nodeName`` is never set. Injecting again, even with other
    locations, first removes the earlier injection.

    Args:
        pod: a dictionary in Kubernetes' JSON form (pod or pod template), or an object of the Kubernetes client.
        required: IDs of the objects that it reads, in addition to those of its annotation.
        locations: bytes by object and node: ``{ID: {node: bytes}}``. An object without an entry is unknown, one with an
            empty entry is lost.
        partitioned: objects that an indexed set of pods divides up: one each, or a contiguous block each. The pod's
            labels give its ordinal; a pod without one is attracted to all of them.
        nodes: the cluster's nodes, as ``Node`` or their labels: they give zones, and determine what the pod's own
            constraints exclude. None: only names are known, and whatever cannot be decided is assumed possible.
        site: configuration of the stores; default: ``ClusterConfig()``.
        strict: whether a problem is an error.

    Returns:
        The pod, of the same kind; the argument is not modified.

    Raises:
        InvalidArgument: the pod, an annotation, an ID or the locations are invalid.
        PlacementConflict: with ``strict``: the pod's own constraints exclude all nodes with inputs, objects are unknown
            or lost, locations are stale, or a requirement cannot be met.
        VersionMismatch: the pod was injected by a newer version.
    """
    injection = explain(pod, required, locations, partitioned=partitioned, nodes=nodes, site=site, strict=strict)
    injected_pod: P = injection.pod
    return injected_pod


def explain(
    pod: Any,
    required: Iterable[AnyID] | None,
    locations: LocationMap,
    *,
    partitioned: Iterable[AnyID] | None = None,
    nodes: Nodes | None = None,
    site: ClusterConfig | None = None,
    strict: bool = False,
    context: WorkloadContext | None = None,
) -> Injection:
    """Like :func:`inject`, but returns a full account of what was done.

    Args:
        pod, required, locations, partitioned, nodes, site, strict: as for ``inject``.
        context: what the pod gets from the workload that it is part of.

    Raises:
        As ``inject``.
    """
    plain = k8s_models.to_plain(pod)
    explicit_ids = (
        pod_annotations.parse_ids(required or (), "required"),
        pod_annotations.parse_ids(partitioned or (), "partitioned"),
    )
    injection = _inject(
        plain, explicit_ids, locations, _as_nodes(nodes), site or ClusterConfig(), context or WorkloadContext()
    )
    if strict and injection.problems:
        raise PlacementConflict("; ".join(problem.text for problem in injection.problems))
    injection.pod = k8s_models.to_original_type(pod, injection.pod)
    return injection


def required_object_ids(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """The IDs of all objects that a pod reads according to its annotations: required ones, and its own part.

    Args:
        pod: a dictionary in Kubernetes' JSON form.

    Raises:
        InvalidArgument: an annotation is invalid; the message names it and its value.
    """
    requested = pod_annotations.parse_annotations((pod.get("metadata") or {}).get("annotations") or {})
    if requested.templated:
        raise InvalidArgument(f"annotation {requested.templated[0]} was not rendered: it still contains '{{{{'")
    part = _own_part(dict(pod), requested.partitioned, requested, Injection(pod, LocatedInputs()))
    return tuple(dict.fromkeys((*requested.requires, *part)))


def _inject(
    pod: dict[str, Any],
    explicit_ids: tuple[tuple[str, ...], tuple[str, ...]],
    locations: LocationMap,
    nodes: Mapping[str, Node] | None,
    cluster_config: ClusterConfig,
    context: WorkloadContext,
) -> Injection:
    pod_validation.validate_pod(pod)
    previous_pod = k8s_models.to_plain(pod) if record.is_injected(pod) else None
    record.remove_injection(pod)
    spec: dict[str, Any] = pod["spec"]
    requested = pod_annotations.parse_annotations(
        {**context.annotations, **((pod.get("metadata") or {}).get("annotations") or {})}
    )
    injection = Injection(pod, LocatedInputs(), added=record.InjectionDiff(created=list(context.created_entries)))
    required_ids = dict.fromkeys((*explicit_ids[0], *requested.requires))
    required_ids.update(dict.fromkeys(_own_part(pod, (*explicit_ids[1], *requested.partitioned), requested, injection)))
    injection.inputs = scoring.locate_inputs(required_ids, locations)
    injection.reasons += _input_warnings(injection.inputs, requested)
    if _is_windows(spec):
        injection.reasons.append(PlacementWarning("windows", "stores run on Linux only, and this pod runs on Windows"))
    else:
        if context.may_be_placed:
            _add_affinity(spec, requested, nodes, cluster_config, injection)
        if requested.mounts and context.mounts:
            injection.reasons += affinity.add_mounts(
                spec, cluster_config, requested.containers, context.volumes, injection.added
            )
    if not injection.added.is_empty or injection.reasons:
        _write_record(pod, requested, len(required_ids), injection)
    if previous_pod is not None and record.is_unchanged(previous_pod, pod):
        injection.pod = previous_pod
    return injection


def _own_part(
    pod: dict[str, Any], partitioned: tuple[str, ...], requested: pod_annotations.PodAnnotations, injection: Injection
) -> Iterable[str]:
    if not partitioned:
        return ()
    ordinal = _ordinal(pod)
    if ordinal is None:
        return partitioned
    injection.ordinal = ordinal - requested.first_ordinal
    injection.pods = requested.partitions or len(partitioned)
    part = scoring.partition(partitioned, injection.ordinal, injection.pods)
    if not part:
        text = (
            f"pod {ordinal} has no part of the {len(partitioned)} partitioned objects, "
            f"split among {injection.pods} pods"
        )
        injection.reasons.append(PlacementWarning("no-part", text))
    return part


def _ordinal(pod: dict[str, Any]) -> int | None:
    metadata = pod.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for value in (labels.get(JOB_INDEX), annotations.get(JOB_INDEX), labels.get(POD_INDEX)):
        if isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value)
    last = str(labels.get(STATEFUL_POD, "")).rpartition("-")[2]  # clusters before 1.28 set no index
    return int(last) if last.isascii() and last.isdigit() else None


def _input_warnings(inputs: LocatedInputs, requested: pod_annotations.PodAnnotations) -> list[PlacementWarning]:
    warnings: list[PlacementWarning] = []
    for key in requested.templated:
        warnings.append(PlacementWarning("templated", f"{key} is known only when the pod is created"))
    if inputs.unknown:
        warnings.append(
            PlacementWarning("unknown-objects", f"no location is known for {summarize_names(inputs.unknown)}")
        )
    if inputs.lost:
        warnings.append(PlacementWarning("lost-objects", f"no node holds {summarize_names(inputs.lost)} any more"))
    return warnings


def _add_affinity(
    spec: dict[str, Any],
    requested: pod_annotations.PodAnnotations,
    nodes: Mapping[str, Node] | None,
    cluster_config: ClusterConfig,
    injection: Injection,
) -> None:
    if requested.locality == "off" and requested.store == "off":
        return
    if spec.get("nodeName"):
        injection.reasons.append(
            PlacementWarning("bound", f"the pod is bound to node {spec['nodeName']}: its affinity is left unchanged")
        )
        return
    terms = affinity.required_terms(spec)
    constraints = Constraints(spec, terms)
    if terms is not None and not any(term.get("matchExpressions") or term.get("matchFields") for term in terms):
        injection.reasons.append(PlacementWarning("conflict", "the pod's own required node affinity can match no node"))
        return
    preferred: list[dict[str, Any]] = []
    bound_nodes: set[str] = set()
    if requested.locality != "off" and injection.inputs.nbytes:
        candidates = scoring.find_candidates(injection.inputs, nodes, constraints, cluster_config)
        injection.pulls, warnings = scoring.score_candidates(candidates, cluster_config)
        injection.reasons += candidates.warnings + warnings
        preferred = scoring.preferred_terms(injection.pulls, cluster_config)
        if requested.locality == "required":
            bound_nodes = _require_holders(spec, candidates, cluster_config, injection)
    if requested.store != "off":
        preferred += _add_store_term(spec, requested, constraints, nodes, bound_nodes, cluster_config, injection)
    if preferred:
        affinity.add_preferred_terms(spec, preferred, injection.added)


def _require_holders(
    spec: dict[str, Any], candidates: scoring.Candidates, cluster_config: ClusterConfig, injection: Injection
) -> set[str]:
    """Require, and return, the nodes that hold everything located. If there are none, the pod is only attracted."""
    holders = {
        name: node.labels[cluster_config.hostname_label]
        for name, node in candidates.nodes.items()
        if injection.inputs.object_counts[name] == injection.inputs.located
        and cluster_config.hostname_label in node.labels
    }
    if not holders:
        text = f"{LOCALITY} is 'required', but no node where the pod may run holds all its inputs: treated as preferred"
        injection.reasons.append(PlacementWarning("no-holder", text))
        return set()
    if len(holders) > scoring.MAX_REQUIRED_NODES:
        text = f"{len(holders)} nodes hold all inputs; the pod is bound to {scoring.MAX_REQUIRED_NODES} of them"
        injection.reasons.append(PlacementWarning("bounded", text))
        holders = dict(list(holders.items())[: scoring.MAX_REQUIRED_NODES])
    injection.required = sorted(holders.values())
    affinity.add_required_expression(
        spec, scoring.match_expression(cluster_config.hostname_label, injection.required), injection.added
    )
    return set(holders)


def _add_store_term(
    spec: dict[str, Any],
    requested: pod_annotations.PodAnnotations,
    constraints: Constraints,
    nodes: Mapping[str, Node] | None,
    bound_nodes: set[str],
    cluster_config: ClusterConfig,
    injection: Injection,
) -> list[dict[str, Any]]:
    """Require a store if that leaves the pod a node; returns the terms that prefer one."""
    label, value = cluster_config.store_label, cluster_config.store_value
    injection.store = requested.store
    if nodes is None:
        assumed_node = Node(labels={label: value}, complete=False)
        is_available = constraints.allows("", assumed_node) is not False
        on_every_node = False
    else:
        allowed_nodes = [node for name, node in nodes.items() if constraints.allows(name, node) is not False]
        is_available = any(
            node.labels.get(label) == value and constraints.allows(name, node) is not False
            for name, node in nodes.items()
            if not bound_nodes or name in bound_nodes
        )
        on_every_node = is_available and all(node.labels.get(label) == value for node in allowed_nodes)
    if requested.store == "required":
        if is_available:
            affinity.add_required_expression(spec, scoring.match_expression(label, [value]), injection.added)
            return []
        injection.store = "preferred"
        text = (
            f"{STORE} is 'required', but no node where the pod may run has label {label}={value}: treated as preferred"
        )
        injection.reasons.append(PlacementWarning("no-store", text))
    # If every node has a store, a term that they all match would only dilute the others.
    return [] if on_every_node else [scoring.preferred_term(STORE_WEIGHT, label, [value])]


def _write_record(
    pod: dict[str, Any], requested: pod_annotations.PodAnnotations, required_count: int, injection: Injection
) -> None:
    facts: dict[str, Any] = {
        "locality": requested.locality,
        "store": injection.store,
        "objects": {
            "required": required_count,
            "located": injection.inputs.located,
            "bytes": sum(injection.inputs.nbytes.values()),
        },
        "nodes": [
            [entry.kind, entry.value, entry.nbytes, entry.weight] for entry in injection.pulls[:MAX_RECORDED_NODES]
        ],
        "reasons": [[entry.code, entry.text] for entry in injection.reasons],
    }
    if len(injection.pulls) > MAX_RECORDED_NODES:
        facts["more_nodes"] = len(injection.pulls) - MAX_RECORDED_NODES
    if injection.required:
        facts["bound_to"] = injection.required[:MAX_RECORDED_NODES]
    if injection.ordinal is not None:
        facts["partition"] = {"ordinal": injection.ordinal, "of": injection.pods}
    metadata: dict[str, Any] | None = pod.get("metadata")
    if metadata is None:
        metadata = pod["metadata"] = {}
        injection.added.created.append("metadata")
    annotations: dict[str, Any] | None = metadata.get("annotations")
    if annotations is None:
        annotations = metadata["annotations"] = {}
        injection.added.created.append("annotations")
    annotations[INJECTED] = record.to_text(facts, injection.added)


def _as_nodes(nodes: Nodes | None) -> dict[str, Node] | None:
    if nodes is None:
        return None
    return {name: node if isinstance(node, Node) else Node(labels=node) for name, node in nodes.items()}


def _is_windows(spec: dict[str, Any]) -> bool:
    return bool((spec.get("os") or {}).get("name") == "windows")
