"""Sums up the bytes of a pod's inputs by node, and computes weights for nodes and zones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

from entrepot_operator.placement.names import ClusterConfig
from entrepot_operator.placement.nodes import Constraints, Node
from entrepot_operator.placement.warnings import PlacementWarning, summarize_names

LocationMap = Mapping[Any, Mapping[str, int]]

HOST_WEIGHT = 100  # of the node with the most bytes; Kubernetes accepts 1 to 100
# A zone decides among nodes with similar amounts: it offsets at most a fifth of the best node's bytes.
ZONE_WEIGHT = 20
MAX_NODES = 100  # in one pod's terms: keeps manifests readable, and nodes with few bytes hardly count
# That a pod is bound to; annotations are limited to 256 KiB, and the record names the nodes again.
MAX_REQUIRED_NODES = 1000


@dataclass
class LocatedInputs:
    """Locations of required objects.

    Attributes:
        located: number of objects with a location.
        unknown: objects that no source of locations knows.
        lost: objects that are known, but exist nowhere.
        nbytes: bytes of these objects on each node.
        object_counts: number of them on each node.
    """

    located: int = 0
    unknown: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    nbytes: dict[str, int] = field(default_factory=dict[str, int])
    object_counts: dict[str, int] = field(default_factory=dict[str, int])


def locate_inputs(required: Iterable[str], locations: LocationMap) -> LocatedInputs:
    """Sum up the bytes of the required objects by node.

    Args:
        required: object IDs, 40 hexadecimal digits each.
        locations: bytes by object and node; keys are such strings or ``ObjectID``.

    Raises:
        InvalidArgument: the locations have another form.
    """
    if not isinstance(locations, Mapping):
        raise InvalidArgument(f"locations must be {{ID: {{node: bytes}}}}, but got {type(locations).__name__}")
    inputs = LocatedInputs()
    nbytes, object_counts = inputs.nbytes, inputs.object_counts
    for oid in required:
        by_node = locations.get(oid)
        if by_node is None:
            by_node = locations.get(ObjectID(oid))
        if by_node is None:
            inputs.unknown.append(oid)
            continue
        if type(by_node) is not dict and not isinstance(by_node, Mapping):
            raise InvalidArgument(f"the locations of {oid} must be {{node: bytes}}, but got {by_node!r}")
        if not by_node:
            inputs.lost.append(oid)
            continue
        inputs.located += 1
        for node, count in by_node.items():
            if type(count) is not int or count < 0 or not isinstance(node, str) or not node:
                raise InvalidArgument(
                    f"the locations of {oid} must be node names with integer byte counts, but got {node!r}: {count!r}"
                )
            nbytes[node] = nbytes.get(node, 0) + count
            object_counts[node] = object_counts.get(node, 0) + 1
    return inputs


def partition(partitioned: Sequence[str], ordinal: int, pods: int) -> Sequence[str]:
    """The objects of one of several pods: contiguous blocks of equal size, as far as possible.

    >>> [partition("abcde", pod, 2) for pod in range(2)], partition("ab", 7, 2)
    (['ab', 'cde'], '')
    """
    if not 0 <= ordinal < pods:
        return partitioned[:0]
    count = len(partitioned)
    return partitioned[ordinal * count // pods : (ordinal + 1) * count // pods]


@dataclass(frozen=True)
class NodeScore:
    """Weight of one node or zone for the pod.

    Attributes:
        kind: ``"host"`` or ``"zone"``.
        value: of the label.
        nbytes: the bytes there.
        weight: 1 to 100.
    """

    kind: str
    value: str
    nbytes: int
    weight: int


@dataclass
class Candidates:
    """Nodes that hold inputs and where the pod may run.

    Attributes:
        nbytes: bytes by node, in descending order.
        nodes: what is known about each of them.
        zones: bytes by zone, including nodes where the pod may not run: it can still run close to them.
        warnings: why other nodes with inputs are excluded.
    """

    nbytes: dict[str, int]
    nodes: dict[str, Node]
    zones: dict[str, int]
    warnings: list[PlacementWarning]


def find_candidates(
    inputs: LocatedInputs, nodes: Mapping[str, Node] | None, constraints: Constraints, cluster_config: ClusterConfig
) -> Candidates:
    """The nodes with inputs that still exist and that the pod's own constraints allow.

    Args:
        inputs: where the inputs are.
        nodes: the cluster's nodes; None: unknown.
        constraints: the pod's own.
        cluster_config: defines the label that names a node.
    """
    allowed: dict[str, Node] = {}
    stale: list[str] = []
    excluded: dict[str, list[str]] = {}  # by what keeps the pod from them
    zones: dict[str, int] = {}
    for name, count in inputs.nbytes.items():
        if nodes is None:
            node = Node(
                labels={cluster_config.hostname_label: name, cluster_config.store_label: cluster_config.store_value},
                complete=False,
            )
        elif name in nodes:
            node = nodes[name]
        else:
            stale.append(name)
            continue
        zone = node.labels.get(cluster_config.zone_label)
        if zone is not None and count:
            zones[zone] = zones.get(zone, 0) + count
        if constraints.allows(name, node) is False:
            excluded.setdefault(constraints.obstacle(node), []).append(name)
        else:
            allowed[name] = node
    warnings: list[PlacementWarning] = []
    if stale:
        warnings.append(
            PlacementWarning(
                "stale-nodes", f"inputs are reported on nodes that are gone: {summarize_names(sorted(stale))}"
            )
        )
    if excluded:
        groups = [f"{summarize_names(sorted(names))} ({obstacle})" for obstacle, names in sorted(excluded.items())]
        text = f"the pod cannot run on nodes that hold inputs: {'; '.join(groups)}"
        warnings.append(PlacementWarning("excluded-nodes" if allowed else "conflict", text))
    ordered = sorted(allowed, key=lambda name: (-inputs.nbytes[name], name))
    return Candidates({name: inputs.nbytes[name] for name in ordered}, allowed, zones, warnings)


def score_candidates(
    candidates: Candidates, cluster_config: ClusterConfig
) -> tuple[list[NodeScore], list[PlacementWarning]]:
    """The score of each node, proportional to its bytes relative to the best node's; then likewise of each zone."""
    warnings: list[PlacementWarning] = []
    names = [name for name, count in candidates.nbytes.items() if count > 0]
    if len(names) > MAX_NODES:
        warnings.append(
            PlacementWarning(
                "bounded", f"of {len(names)} nodes with inputs, only the {MAX_NODES} with the most bytes count"
            )
        )
    bytes_by_host: dict[str, int] = {}
    for name in names[:MAX_NODES]:
        label = candidates.nodes[name].labels.get(cluster_config.hostname_label)
        if label is None:
            warnings.append(
                PlacementWarning("unlabelled-node", f"node {name} has no label {cluster_config.hostname_label}")
            )
        else:
            bytes_by_host[label] = candidates.nbytes[name]
    host_scores = _scores("host", bytes_by_host, HOST_WEIGHT)
    return host_scores + _scores("zone", candidates.zones, ZONE_WEIGHT)[:MAX_NODES], warnings


def _scores(kind: str, nbytes: Mapping[str, int], top_weight: int) -> list[NodeScore]:
    most_bytes = max(nbytes.values(), default=0)
    ordered = sorted(nbytes.items(), key=lambda item: (-item[1], item[0]))
    # Integers: the sum of bytes may exceed what a float represents exactly.
    return [
        NodeScore(kind, value, count, max(1, (2 * top_weight * count + most_bytes) // (2 * most_bytes)))
        for value, count in ordered
    ]


def preferred_terms(scores: Sequence[NodeScore], cluster_config: ClusterConfig) -> list[dict[str, Any]]:
    """Preferred scheduling terms, one for all labels of the same weight."""
    grouped: dict[tuple[str, int], list[str]] = {}
    for score in scores:
        key = cluster_config.hostname_label if score.kind == "host" else cluster_config.zone_label
        grouped.setdefault((key, score.weight), []).append(score.value)
    return [preferred_term(weight, key, sorted(values)) for (key, weight), values in grouped.items()]


def preferred_term(weight: int, key: str, values: Sequence[str]) -> dict[str, Any]:
    """One preferred scheduling term."""
    return {"weight": weight, "preference": {"matchExpressions": [match_expression(key, values)]}}


def match_expression(key: str, values: Sequence[str]) -> dict[str, Any]:
    """A match expression: the label has one of these values."""
    return {"key": key, "operator": "In", "values": list(values)}
