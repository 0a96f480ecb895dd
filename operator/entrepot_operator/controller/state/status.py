"""Computes a Store's status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from entrepot_operator.controller.state.snapshots import DaemonSetSnapshot, StorePodSnapshot
from entrepot_operator.kubernetes.objects import Condition
from entrepot_operator.kubernetes.store_spec import DEGRADED, PROGRESSING, READY, StoreSpec
from entrepot_operator.placement.nodes import Node
from entrepot_operator.placement.warnings import summarize_names

_MAX_NAMED_PROBLEMS = 5
_MAX_MESSAGE_LENGTH = 2048  # of a message, according to the schema


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
class StoreSnapshot:
    """The observed state of one Store.

    Attributes:
        generation: of its spec.
        spec: None: it is invalid, and one of the failures says why.
        daemonset: None: there is none yet.
        pods: of its DaemonSet.
        live_nodes: nodes whose publisher's lease is valid.
        published_objects: number of objects that count.
        failures: errors of the last attempt.
        conditions: the current conditions.
    """

    generation: int
    spec: StoreSpec | None
    daemonset: DaemonSetSnapshot | None = None
    pods: Sequence[StorePodSnapshot] = ()
    live_nodes: frozenset[str] = frozenset()
    published_objects: int = 0
    failures: Sequence[Failure] = ()
    conditions: Sequence[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])


def ready_nodes(spec: StoreSpec | None, pods: Iterable[StorePodSnapshot], live_nodes: frozenset[str]) -> frozenset[str]:
    """The nodes with a usable store: it responds and, if it publishes at all, its publisher's lease is valid.

    Args:
        spec: None: it is currently invalid, and what was started before keeps running.
        pods: of its DaemonSet.
        live_nodes: nodes whose publisher's lease is valid.
    """
    without_publisher = spec is not None and not spec.publish.enabled
    return frozenset(
        pod.node for pod in pods if pod.ready and pod.node and (without_publisher or pod.node in live_nodes)
    )


def status_of(snapshot: StoreSnapshot, now: datetime) -> dict[str, Any]:
    """The status of a Store.

    Args:
        snapshot: its observed state.
        now: the time for conditions that change.
    """
    ready = ready_nodes(snapshot.spec, snapshot.pods, snapshot.live_nodes)
    desired_nodes = snapshot.daemonset.desired_nodes if snapshot.daemonset is not None else 0
    problems = _problems(snapshot)
    conditions = (
        _ready(snapshot, desired_nodes, ready),
        _progressing(snapshot, desired_nodes, ready, problems),
        _degraded(snapshot, problems),
    )
    updated_conditions = [
        condition.with_transition_time(Condition.find(snapshot.conditions, condition.type), now)
        for condition in conditions
    ]
    return {
        "observedGeneration": snapshot.generation,
        "wantedNodes": desired_nodes,
        "readyNodes": len(ready),
        "publishedObjects": snapshot.published_objects,
        "conditions": [condition.to_dict(snapshot.generation) for condition in updated_conditions],
    }


def find_conflict(
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
        shared = sorted(
            key
            for key, node in nodes.items()
            if _matches_node_selector(spec, node) and _matches_node_selector(theirs, node)
        )
        if shared:
            return Failure(
                "SocketFolderTaken",
                f"Store {other} already uses socketFolder {spec.socket_folder} on {summarize_names(shared)}, and only "
                f"one of them can listen there: give {name} another socketFolder or nodeSelector",
            )
    return None


def _matches_node_selector(spec: StoreSpec, node: Node) -> bool:
    return all(node.labels.get(key) == value for key, value in spec.node_selector.items())


def _ready(snapshot: StoreSnapshot, desired_nodes: int, ready: frozenset[str]) -> Condition:
    if snapshot.daemonset is None:
        return Condition(READY, False, "NoDaemonSet", "its DaemonSet does not exist yet")
    if snapshot.daemonset.observed_generation < snapshot.daemonset.generation:
        return Condition(READY, None, "NotObserved", "the latest change of its DaemonSet has not been observed yet")
    if desired_nodes == 0:
        return Condition(READY, False, "NoNodes", "no node of the cluster matches its nodeSelector and tolerations")
    if len(ready) >= desired_nodes:
        return Condition(READY, True, "AllNodesReady", f"{desired_nodes} of {desired_nodes} nodes have a ready store")
    missing = sorted({pod.node for pod in snapshot.pods if pod.node} - ready)
    text = f"{len(ready)} of {desired_nodes} nodes have a ready store" + (
        f"; not ready: {summarize_names(missing)}" if missing else ""
    )
    return Condition(READY, False, "NodesNotReady", text)


def _progressing(
    snapshot: StoreSnapshot, desired_nodes: int, ready: frozenset[str], problems: Sequence[Failure]
) -> Condition:
    if snapshot.spec is None:
        return Condition(PROGRESSING, False, "Stopped", "its spec is invalid; nothing changes until it is corrected")
    daemonset = snapshot.daemonset
    if daemonset is None or daemonset.observed_generation < daemonset.generation:
        if snapshot.failures:
            return Condition(PROGRESSING, False, "Stopped", "will be retried; see Degraded")
        return Condition(PROGRESSING, True, "RollingOut", "its DaemonSet is being created or updated")
    if daemonset.updated_nodes < desired_nodes:
        return Condition(
            PROGRESSING,
            True,
            "RollingOut",
            f"{daemonset.updated_nodes} of {desired_nodes} nodes match the current spec",
        )
    if len(ready) < desired_nodes and not problems:
        return Condition(PROGRESSING, True, "Starting", f"{desired_nodes - len(ready)} stores are starting")
    return Condition(PROGRESSING, False, "RolledOut", "all nodes match the spec")


def _degraded(snapshot: StoreSnapshot, problems: Sequence[Failure]) -> Condition:
    if not problems:
        return Condition(DEGRADED, False, "AsWanted", "no problems detected")
    text = "; ".join(problem.message for problem in problems[:_MAX_NAMED_PROBLEMS])
    if len(problems) > _MAX_NAMED_PROBLEMS:
        text += f"; and {len(problems) - _MAX_NAMED_PROBLEMS} more"
    return Condition(
        DEGRADED,
        True,
        problems[0].reason,
        text if len(text) <= _MAX_MESSAGE_LENGTH else text[: _MAX_MESSAGE_LENGTH - 3] + "...",
    )


def _problems(snapshot: StoreSnapshot) -> list[Failure]:
    """All problems, in a stable order."""
    problems = list(snapshot.failures)
    publishes = snapshot.spec is None or snapshot.spec.publish.enabled
    for store_pod in sorted(snapshot.pods, key=lambda pod: (pod.node, pod.name)):
        if store_pod.problem:
            problems.append(
                Failure("PodTrouble", f"node {store_pod.node or 'unknown'}: pod {store_pod.name}: {store_pod.problem}")
            )
        elif store_pod.ready and publishes and store_pod.node not in snapshot.live_nodes:
            problems.append(
                Failure(
                    "NotHeard",
                    f"node {store_pod.node}: the store responds, but its publisher has not renewed its lease",
                )
            )
    return problems
