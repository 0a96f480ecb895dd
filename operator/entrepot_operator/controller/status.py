"""Computes a Store's status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from entrepot_io.cluster.objects import Condition
from entrepot_io.placement.nodes import Node
from entrepot_io.placement.reasons import some

from entrepot_operator.controller.observed import DaemonSetSeen, StorePod
from entrepot_operator.stores import DEGRADED, PROGRESSING, READY, StoreSpec

_NAMED = 5
_LONGEST = 2048  # of a message, according to the schema


@dataclass(frozen=True)
class Failure:
    """Something that keeps a Store from its desired state.

    Attributes:
        reason: machine-readable, in CamelCase.
        message: human-readable.
    """

    reason: str
    message: str


@dataclass(frozen=True)
class Observed:
    """The observed state of one Store.

    Attributes:
        generation: of its spec.
        spec: None: it is invalid, and one of the failures says why.
        daemonset: None: there is none yet.
        pods: of its DaemonSet.
        heard: nodes whose publisher's lease is valid.
        published: number of objects that count.
        failures: errors of the last attempt.
        before: the current conditions.
    """

    generation: int
    spec: StoreSpec | None
    daemonset: DaemonSetSeen | None = None
    pods: Sequence[StorePod] = ()
    heard: frozenset[str] = frozenset()
    published: int = 0
    failures: Sequence[Failure] = ()
    before: Sequence[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])


def ready_nodes(spec: StoreSpec | None, pods: Iterable[StorePod], heard: frozenset[str]) -> frozenset[str]:
    """The nodes with a usable store: it responds and, if it publishes at all, its publisher's lease is valid.

    Args:
        spec: None: it is currently invalid, and what was started before keeps running.
        pods: of its DaemonSet.
        heard: nodes whose publisher's lease is valid.
    """
    silent = spec is not None and not spec.publish.enabled
    return frozenset(one.node for one in pods if one.ready and one.node and (silent or one.node in heard))


def status_of(seen: Observed, now: datetime) -> dict[str, Any]:
    """The status of a Store.

    Args:
        seen: its observed state.
        now: the time for conditions that change.
    """
    ready = ready_nodes(seen.spec, seen.pods, seen.heard)
    wanted = seen.daemonset.wanted if seen.daemonset is not None else 0
    troubles = _troubles(seen)
    conditions = (_ready(seen, wanted, ready), _progressing(seen, wanted, ready, troubles), _degraded(seen, troubles))
    told = [one.following(Condition.among(seen.before, one.type), now) for one in conditions]
    return {
        "observedGeneration": seen.generation,
        "wantedNodes": wanted,
        "readyNodes": len(ready),
        "publishedObjects": seen.published,
        "conditions": [one.to_dict(seen.generation) for one in told],
    }


def conflicts(
    name: str, spec: StoreSpec, older: Mapping[str, StoreSpec], nodes: Mapping[str, Node] | None
) -> Failure | None:
    """Whether an older Store has the same socket directory on some node: only one of them can listen there.

    Args:
        name: of the Store.
        spec: of the Store.
        older: the Stores created before it.
        nodes: of the cluster; None: unknown, and no conflict is reported.
    """
    for other, theirs in sorted(older.items()):
        if theirs.socket_folder != spec.socket_folder or nodes is None:
            continue
        shared = sorted(key for key, node in nodes.items() if _fits(spec, node) and _fits(theirs, node))
        if shared:
            return Failure(
                "SocketFolderTaken",
                f"the Store {other} has the socketFolder {spec.socket_folder} on {some(shared)} too, and only one of "
                f"the two can listen there: give {name} another one, or another nodeSelector",
            )
    return None


def _fits(spec: StoreSpec, node: Node) -> bool:
    return all(node.labels.get(key) == value for key, value in spec.node_selector.items())


def _ready(seen: Observed, wanted: int, ready: frozenset[str]) -> Condition:
    if seen.daemonset is None:
        return Condition(READY, False, "NoDaemonSet", "its DaemonSet is not there yet")
    if seen.daemonset.observed < seen.daemonset.generation:
        return Condition(READY, None, "NotObserved", "what its DaemonSet is to become was not looked at yet")
    if wanted == 0:
        return Condition(READY, False, "NoNodes", "no node of the cluster fits its nodeSelector and tolerations")
    if len(ready) >= wanted:
        return Condition(READY, True, "AllNodesReady", f"{wanted} of {wanted} nodes have their store")
    missing = sorted({one.node for one in seen.pods if one.node} - ready)
    text = f"{len(ready)} of {wanted} nodes have their store" + (f"; not yet {some(missing)}" if missing else "")
    return Condition(READY, False, "NodesNotReady", text)


def _progressing(seen: Observed, wanted: int, ready: frozenset[str], troubles: Sequence[Failure]) -> Condition:
    if seen.spec is None:
        return Condition(PROGRESSING, False, "Stopped", "nothing changes before its spec can be understood")
    there = seen.daemonset
    if there is None or there.observed < there.generation:
        if seen.failures:
            return Condition(PROGRESSING, False, "Stopped", "it is tried again; see Degraded")
        return Condition(PROGRESSING, True, "RollingOut", "its DaemonSet is being made or changed")
    if there.updated < wanted:
        return Condition(
            PROGRESSING, True, "RollingOut", f"{there.updated} of {wanted} nodes have what the spec says now"
        )
    if len(ready) < wanted and not troubles:
        return Condition(PROGRESSING, True, "Starting", f"{wanted - len(ready)} stores are starting")
    return Condition(PROGRESSING, False, "RolledOut", "every node has what the spec says")


def _degraded(seen: Observed, troubles: Sequence[Failure]) -> Condition:
    if not troubles:
        return Condition(DEGRADED, False, "AsWanted", "nothing is wrong that anybody could see")
    text = "; ".join(one.message for one in troubles[:_NAMED])
    if len(troubles) > _NAMED:
        text += f"; and {len(troubles) - _NAMED} more"
    return Condition(
        DEGRADED, True, troubles[0].reason, text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    )


def _troubles(seen: Observed) -> list[Failure]:
    """All problems, in a stable order."""
    found = list(seen.failures)
    publishes = seen.spec is None or seen.spec.publish.enabled
    for one in sorted(seen.pods, key=lambda pod: (pod.node, pod.name)):
        if one.trouble:
            found.append(Failure("PodTrouble", f"node {one.node or 'unknown'}: pod {one.name}: {one.trouble}"))
        elif one.ready and publishes and one.node not in seen.heard:
            found.append(
                Failure("NotHeard", f"node {one.node}: the store answers, but its publisher has not renewed its lease")
            )
    return found
