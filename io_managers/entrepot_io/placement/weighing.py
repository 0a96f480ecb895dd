"""Sums up the bytes of a pod's inputs by node, and computes weights for nodes and zones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

from entrepot_io.placement.names import Site
from entrepot_io.placement.nodes import Constraints, Node
from entrepot_io.placement.reasons import Reason, some

Locations = Mapping[Any, Mapping[str, int]]

HOST_WEIGHT = 100  # of the node with the most bytes; Kubernetes accepts 1 to 100
# A zone decides among nodes with similar amounts: it offsets at most a fifth of the best node's bytes.
ZONE_WEIGHT = 20
MAX_NODES = 100  # in one pod's terms: keeps manifests readable, and nodes with few bytes hardly count
MAX_REQUIRED = 1000  # that a pod is bound to; annotations are limited to 256 KiB, and the record names the nodes again


@dataclass
class Found:
    """Where required objects are.

    Attributes:
        located: number of objects with a location.
        unknown: objects that no source of locations knows.
        lost: objects that are known, but exist nowhere.
        nbytes: bytes of these objects on each node.
        holds: number of them on each node.
    """

    located: int = 0
    unknown: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    nbytes: dict[str, int] = field(default_factory=dict[str, int])
    holds: dict[str, int] = field(default_factory=dict[str, int])


def locate(required: Iterable[str], locations: Locations) -> Found:
    """Sum up the bytes of the required objects by node.

    Args:
        required: object IDs, 40 hexadecimal digits each.
        locations: bytes by object and node; keys are such strings or ``ObjectID``.

    Raises:
        InvalidArgument: the locations have another form.
    """
    if not isinstance(locations, Mapping):
        raise InvalidArgument(f"locations are {{ID: {{node: bytes}}}}, but got {type(locations).__name__}")
    found = Found()
    nbytes, holds = found.nbytes, found.holds
    for oid in required:
        places = locations.get(oid)
        if places is None:
            places = locations.get(ObjectID(oid))
        if places is None:
            found.unknown.append(oid)
            continue
        if type(places) is not dict and not isinstance(places, Mapping):
            raise InvalidArgument(f"the locations of {oid} are {{node: bytes}}, but got {places!r}")
        if not places:
            found.lost.append(oid)
            continue
        found.located += 1
        for node, count in places.items():
            if type(count) is not int or count < 0 or not isinstance(node, str) or not node:
                raise InvalidArgument(
                    f"the locations of {oid} are names of nodes with whole numbers of bytes, but got {node!r}: "
                    f"{count!r}"
                )
            nbytes[node] = nbytes.get(node, 0) + count
            holds[node] = holds.get(node, 0) + 1
    return found


def part(partitioned: Sequence[str], ordinal: int, pods: int) -> Sequence[str]:
    """The objects of one of several pods: contiguous blocks of equal size, as far as possible.

    >>> [part("abcde", pod, 2) for pod in range(2)], part("ab", 7, 2)
    (['ab', 'cde'], '')
    """
    if not 0 <= ordinal < pods:
        return partitioned[:0]
    count = len(partitioned)
    return partitioned[ordinal * count // pods : (ordinal + 1) * count // pods]


@dataclass(frozen=True)
class Pull:
    """How strongly one node or zone attracts the pod.

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
        known: what is known about each of them.
        zones: bytes by zone, including nodes where the pod may not run: it can still run close to them.
        reasons: why other nodes with inputs are excluded.
    """

    nbytes: dict[str, int]
    known: dict[str, Node]
    zones: dict[str, int]
    reasons: list[Reason]


def candidates(found: Found, nodes: Mapping[str, Node] | None, constraints: Constraints, site: Site) -> Candidates:
    """The nodes with inputs that still exist and that the pod's own constraints allow.

    Args:
        found: where the inputs are.
        nodes: the cluster's nodes; None: unknown.
        constraints: the pod's own.
        site: defines the label that names a node.
    """
    known: dict[str, Node] = {}
    stale: list[str] = []
    excluded: list[str] = []
    zones: dict[str, int] = {}
    for name, count in found.nbytes.items():
        if nodes is None:
            node = Node(labels={site.hostname_label: name, site.store_label: site.store_value}, complete=False)
        elif name in nodes:
            node = nodes[name]
        else:
            stale.append(name)
            continue
        zone = node.labels.get(site.zone_label)
        if zone is not None and count:
            zones[zone] = zones.get(zone, 0) + count
        if constraints.allow(name, node) is False:
            excluded.append(name)
        else:
            known[name] = node
    reasons: list[Reason] = []
    if stale:
        reasons.append(Reason("stale-nodes", f"inputs are said to be on nodes that are gone: {some(sorted(stale))}"))
    if excluded:
        text = f"the pod's own constraints exclude nodes that hold inputs: {some(sorted(excluded))}"
        reasons.append(Reason("excluded-nodes" if known else "conflict", text))
    ordered = sorted(known, key=lambda name: (-found.nbytes[name], name))
    return Candidates({name: found.nbytes[name] for name in ordered}, known, zones, reasons)


def pulls(there: Candidates, site: Site) -> tuple[list[Pull], list[Reason]]:
    """The pull of each node, proportional to its bytes relative to the best node's; then likewise of each zone."""
    reasons: list[Reason] = []
    names = [name for name, count in there.nbytes.items() if count > 0]
    if len(names) > MAX_NODES:
        reasons.append(
            Reason("bounded", f"of {len(names)} nodes with inputs only the {MAX_NODES} with most bytes count")
        )
    hosts: dict[str, int] = {}
    for name in names[:MAX_NODES]:
        label = there.known[name].labels.get(site.hostname_label)
        if label is None:
            reasons.append(Reason("unlabelled-node", f"node {name} has no label {site.hostname_label}"))
        else:
            hosts[label] = there.nbytes[name]
    found = _weighed("host", hosts, HOST_WEIGHT)
    return found + _weighed("zone", there.zones, ZONE_WEIGHT)[:MAX_NODES], reasons


def _weighed(kind: str, nbytes: Mapping[str, int], top_weight: int) -> list[Pull]:
    top = max(nbytes.values(), default=0)
    ordered = sorted(nbytes.items(), key=lambda one: (-one[1], one[0]))
    # Integers: the sum of bytes may exceed what a float represents exactly.
    return [Pull(kind, value, count, max(1, (2 * top_weight * count + top) // (2 * top))) for value, count in ordered]


def preferred_terms(found: Sequence[Pull], site: Site) -> list[dict[str, Any]]:
    """Preferred scheduling terms, one for all labels of the same weight."""
    grouped: dict[tuple[str, int], list[str]] = {}
    for pull in found:
        key = site.hostname_label if pull.kind == "host" else site.zone_label
        grouped.setdefault((key, pull.weight), []).append(pull.value)
    return [preferred_term(weight, key, sorted(values)) for (key, weight), values in grouped.items()]


def preferred_term(weight: int, key: str, values: Sequence[str]) -> dict[str, Any]:
    """One preferred scheduling term."""
    return {"weight": weight, "preference": {"matchExpressions": [expression(key, values)]}}


def expression(key: str, values: Sequence[str]) -> dict[str, Any]:
    """A match expression: the label has one of these values."""
    return {"key": key, "operator": "In", "values": list(values)}
