"""``inject``: makes a pod prefer the nodes that hold its inputs, and gives it access to the store there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

from entrepot_io.placement import affinity, asked, models, record, shapes, weighing
from entrepot_io.placement.names import (
    INJECTED,
    JOB_INDEX,
    LOCALITY,
    POD_INDEX,
    STATEFUL_POD,
    STORE,
    Site,
)
from entrepot_io.placement.nodes import Constraints, Node
from entrepot_io.placement.reasons import PlacementConflict, Reason, some
from entrepot_io.placement.weighing import Found, Locations, Pull

P = TypeVar("P")
AnyID = str | bytes | ObjectID
Nodes = Mapping[str, Node | Mapping[str, str]]

# Compared with the best node's 100: a store without any of the inputs counts, but less than the inputs.
STORE_WEIGHT = 50
MAX_NAMED = 10  # nodes in the record


@dataclass(frozen=True)
class Surroundings:
    """What a pod gets from the workload that it is part of.

    Attributes:
        volumes: names of volumes in addition to its own.
        annotations: inherited ones; its own take precedence.
        created: entries that are created in the pod although they only repeat the workload's.
        placed: whether the scheduler may choose its node; false for a DaemonSet, whose pods run on every node.
        mounts: whether the store's directory may be mounted; false where hostPath volumes are forbidden.
    """

    volumes: Collection[str] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    created: Collection[str] = ()
    placed: bool = True
    mounts: bool = True


@dataclass
class Injection:
    """The result of one injection.

    Attributes:
        pod: the pod, of the same kind as the argument.
        found: where its inputs are.
        pulls: nodes and zones that attract it.
        required: nodes that it is bound to; empty: none.
        store: how a store is required: ``"preferred"``, ``"required"`` or ``"off"``.
        ordinal, pods: which part of the partitioned objects it reads; None: all of them.
        reasons: unexpected outcomes, and why.
        added: exactly what was added.
    """

    pod: Any
    found: Found
    pulls: list[Pull] = field(default_factory=list[Pull])
    required: list[str] = field(default_factory=list[str])
    store: str = "off"
    ordinal: int | None = None
    pods: int | None = None
    reasons: list[Reason] = field(default_factory=list[Reason])
    added: record.Added = field(default_factory=record.Added)

    @property
    def problems(self) -> list[Reason]:
        """The reasons that need attention."""
        return [one for one in self.reasons if one.problem]


def inject(
    pod: P,
    required: Iterable[AnyID] | None,
    locations: Locations,
    *,
    partitioned: Iterable[AnyID] | None = None,
    nodes: Nodes | None = None,
    site: Site | None = None,
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
        site: configuration of the stores; default: ``Site()``.
        strict: whether a problem is an error.

    Returns:
        The pod, of the same kind; the argument is not modified.

    Raises:
        InvalidArgument: the pod, an annotation, an ID or the locations are invalid.
        PlacementConflict: with ``strict``: the pod's own constraints exclude all nodes with inputs, objects are unknown
            or lost, locations are stale, or a requirement cannot be met.
        VersionMismatch: the pod was injected by a newer version.
    """
    done = explain(pod, required, locations, partitioned=partitioned, nodes=nodes, site=site, strict=strict)
    found: P = done.pod
    return found


def explain(
    pod: Any,
    required: Iterable[AnyID] | None,
    locations: Locations,
    *,
    partitioned: Iterable[AnyID] | None = None,
    nodes: Nodes | None = None,
    site: Site | None = None,
    strict: bool = False,
    around: Surroundings | None = None,
) -> Injection:
    """Like :func:`inject`, but returns a full account of what was done.

    Args:
        pod, required, locations, partitioned, nodes, site, strict: as for ``inject``.
        around: what the pod gets from the workload that it is part of.

    Raises:
        As ``inject``.
    """
    plain = models.to_plain(pod)
    given = asked.ids(required or (), "required"), asked.ids(partitioned or (), "partitioned")
    done = _inject(plain, given, locations, _nodes(nodes), site or Site(), around or Surroundings())
    if strict and done.problems:
        raise PlacementConflict("; ".join(one.text for one in done.problems))
    done.pod = models.back(pod, done.pod)
    return done


def needed(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """The IDs of all objects that a pod reads according to its annotations: required ones, and its own part.

    Args:
        pod: a dictionary in Kubernetes' JSON form.

    Raises:
        InvalidArgument: an annotation is invalid; the message names it and its value.
    """
    wish = asked.read((pod.get("metadata") or {}).get("annotations") or {})
    if wish.templated:
        raise InvalidArgument(f"annotation {wish.templated[0]} was never filled in: it still has '{{{{' in it")
    part = _own_part(dict(pod), wish.partitioned, wish, Injection(pod, Found()))
    return tuple(dict.fromkeys((*wish.requires, *part)))


def _inject(
    pod: dict[str, Any],
    given: tuple[tuple[str, ...], tuple[str, ...]],
    locations: Locations,
    nodes: Mapping[str, Node] | None,
    site: Site,
    around: Surroundings,
) -> Injection:
    shapes.check(pod)
    before = models.to_plain(pod) if record.is_in(pod) else None
    record.strip(pod)
    spec: dict[str, Any] = pod["spec"]
    wish = asked.read({**around.annotations, **((pod.get("metadata") or {}).get("annotations") or {})})
    done = Injection(pod, Found(), added=record.Added(created=list(around.created)))
    needed = dict.fromkeys((*given[0], *wish.requires))
    needed.update(dict.fromkeys(_own_part(pod, (*given[1], *wish.partitioned), wish, done)))
    done.found = weighing.locate(needed, locations)
    done.reasons += _about(done.found, wish)
    if _is_windows(spec):
        done.reasons.append(Reason("windows", "stores run on Linux only, and this pod runs on Windows"))
    else:
        if around.placed:
            _place(spec, wish, nodes, site, done)
        if wish.mounts and around.mounts:
            done.reasons += affinity.mount(spec, site, wish.containers, around.volumes, done.added)
    if not done.added.nothing or done.reasons:
        _write(pod, wish, len(needed), done)
    if before is not None and record.unchanged(before, pod):
        done.pod = before
    return done


def _own_part(pod: dict[str, Any], partitioned: tuple[str, ...], wish: asked.Asked, done: Injection) -> Iterable[str]:
    if not partitioned:
        return ()
    ordinal = _ordinal(pod)
    if ordinal is None:
        return partitioned
    done.ordinal = ordinal - wish.first_ordinal
    done.pods = wish.partitions or len(partitioned)
    own = weighing.part(partitioned, done.ordinal, done.pods)
    if not own:
        text = f"pod {ordinal} has no part of the {len(partitioned)} partitioned objects, dealt among {done.pods} pods"
        done.reasons.append(Reason("no-part", text))
    return own


def _ordinal(pod: dict[str, Any]) -> int | None:
    metadata = pod.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for value in (labels.get(JOB_INDEX), annotations.get(JOB_INDEX), labels.get(POD_INDEX)):
        if isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value)
    last = str(labels.get(STATEFUL_POD, "")).rpartition("-")[2]  # clusters before 1.28 set no index
    return int(last) if last.isascii() and last.isdigit() else None


def _about(found: Found, wish: asked.Asked) -> list[Reason]:
    reasons: list[Reason] = []
    for key in wish.templated:
        reasons.append(Reason("templated", f"{key} is known only when the pod is made"))
    if found.unknown:
        reasons.append(Reason("unknown-objects", f"no location is known of {some(found.unknown)}"))
    if found.lost:
        reasons.append(Reason("lost-objects", f"no node holds {some(found.lost)} any more"))
    return reasons


def _place(
    spec: dict[str, Any], wish: asked.Asked, nodes: Mapping[str, Node] | None, site: Site, done: Injection
) -> None:
    if wish.locality == "off" and wish.store == "off":
        return
    if spec.get("nodeName"):
        done.reasons.append(
            Reason("bound", f"the pod is bound to node {spec['nodeName']}: its affinity stays as it is")
        )
        return
    terms = affinity.required_terms(spec)
    constraints = Constraints(spec, terms)
    if terms is not None and not any(term.get("matchExpressions") or term.get("matchFields") for term in terms):
        done.reasons.append(Reason("conflict", "the pod's own required node affinity matches no node at all"))
        return
    preferred: list[dict[str, Any]] = []
    chosen: set[str] = set()
    if wish.locality != "off" and done.found.nbytes:
        there = weighing.candidates(done.found, nodes, constraints, site)
        done.pulls, reasons = weighing.pulls(there, site)
        done.reasons += there.reasons + reasons
        preferred = weighing.preferred_terms(done.pulls, site)
        if wish.locality == "required":
            chosen = _bind(spec, there, site, done)
    if wish.store != "off":
        preferred += _demand_store(spec, wish, constraints, nodes, chosen, site, done)
    if preferred:
        affinity.prefer(spec, preferred, done.added)


def _bind(spec: dict[str, Any], there: weighing.Candidates, site: Site, done: Injection) -> set[str]:
    """Require, and return, the nodes that hold everything located. If there are none, the pod is only attracted."""
    whole = {
        name: node.labels[site.hostname_label]
        for name, node in there.known.items()
        if done.found.holds[name] == done.found.located and site.hostname_label in node.labels
    }
    if not whole:
        text = f"{LOCALITY} is 'required', but no node where the pod may run holds all its inputs: they only draw it"
        done.reasons.append(Reason("no-holder", text))
        return set()
    if len(whole) > weighing.MAX_REQUIRED:
        text = f"of {len(whole)} nodes that hold all inputs the pod is bound to {weighing.MAX_REQUIRED}"
        done.reasons.append(Reason("bounded", text))
        whole = dict(list(whole.items())[: weighing.MAX_REQUIRED])
    done.required = sorted(whole.values())
    affinity.require(spec, weighing.expression(site.hostname_label, done.required), done.added)
    return set(whole)


def _demand_store(
    spec: dict[str, Any],
    wish: asked.Asked,
    constraints: Constraints,
    nodes: Mapping[str, Node] | None,
    chosen: set[str],
    site: Site,
    done: Injection,
) -> list[dict[str, Any]]:
    """Require a store if that leaves the pod a node; returns the terms that prefer one."""
    label, value = site.store_label, site.store_value
    done.store = wish.store
    if nodes is None:
        pretended = Node(labels={label: value}, complete=False)
        ready = constraints.allow("", pretended) is not False
        everywhere = False
    else:
        usable = [node for name, node in nodes.items() if constraints.allow(name, node) is not False]
        ready = any(
            node.labels.get(label) == value and constraints.allow(name, node) is not False
            for name, node in nodes.items()
            if not chosen or name in chosen
        )
        everywhere = ready and all(node.labels.get(label) == value for node in usable)
    if wish.store == "required":
        if ready:
            affinity.require(spec, weighing.expression(label, [value]), done.added)
            return []
        done.store = "preferred"
        text = (
            f"{STORE} is 'required', but no node where the pod may run has the label {label}={value}: it is preferred"
        )
        done.reasons.append(Reason("no-store", text))
    # If every node has a store, a term that they all match would only dilute the others.
    return [] if everywhere else [weighing.preferred_term(STORE_WEIGHT, label, [value])]


def _write(pod: dict[str, Any], wish: asked.Asked, needed: int, done: Injection) -> None:
    facts: dict[str, Any] = {
        "locality": wish.locality,
        "store": done.store,
        "objects": {"required": needed, "located": done.found.located, "bytes": sum(done.found.nbytes.values())},
        "nodes": [[one.kind, one.value, one.nbytes, one.weight] for one in done.pulls[:MAX_NAMED]],
        "reasons": [[one.code, one.text] for one in done.reasons],
    }
    if len(done.pulls) > MAX_NAMED:
        facts["more_nodes"] = len(done.pulls) - MAX_NAMED
    if done.required:
        facts["bound_to"] = done.required[:MAX_NAMED]
    if done.ordinal is not None:
        facts["partition"] = {"ordinal": done.ordinal, "of": done.pods}
    metadata: dict[str, Any] | None = pod.get("metadata")
    if metadata is None:
        metadata = pod["metadata"] = {}
        done.added.created.append("metadata")
    annotations: dict[str, Any] | None = metadata.get("annotations")
    if annotations is None:
        annotations = metadata["annotations"] = {}
        done.added.created.append("annotations")
    annotations[INJECTED] = record.text(facts, done.added)


def _nodes(nodes: Nodes | None) -> dict[str, Node] | None:
    if nodes is None:
        return None
    return {name: node if isinstance(node, Node) else Node(labels=node) for name, node in nodes.items()}


def _is_windows(spec: dict[str, Any]) -> bool:
    return bool((spec.get("os") or {}).get("name") == "windows")
