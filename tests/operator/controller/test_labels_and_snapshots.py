"""Node labels, and what the operator keeps of pods, DaemonSets and nodes, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from entrepot_operator.controller.state import snapshots
from entrepot_operator.controller.state.labels import label_changes
from entrepot_operator.controller.state.snapshots import NodeSnapshot
from hypothesis import given
from hypothesis import strategies as st

NAMES = ["n1", "n2", "n3"]
nodes = st.lists(
    st.builds(
        NodeSnapshot, st.sampled_from(NAMES), st.just("u"), st.sampled_from([None, "ready", "other"]), st.booleans()
    ),
    unique_by=lambda node: node.name,
)


def applied(snapshot: NodeSnapshot, labelled: bool) -> NodeSnapshot:
    """Apply a change as server-side apply would: our fields that we omit are removed, those of others stay."""
    if labelled:
        return NodeSnapshot(snapshot.name, snapshot.uid, "ready", True)
    return NodeSnapshot(snapshot.name, snapshot.uid, None if snapshot.is_ours else snapshot.label_value, False)


@given(nodes, st.frozensets(st.sampled_from(NAMES)))
def test_changes_lead_to_what_is_wanted_and_then_there_are_none(
    node_snapshots: list[NodeSnapshot], ready: frozenset[str]
) -> None:
    labelled_by_name = {item.node: item.labelled for item in label_changes(node_snapshots, ready)}
    after = [
        applied(item, labelled_by_name[item.name]) if item.name in labelled_by_name else item for item in node_snapshots
    ]
    for before, item in zip(node_snapshots, after, strict=True):
        if item.name in ready:
            assert item.label_value == "ready"
        else:
            assert not item.is_ours
            assert item.label_value == (None if before.is_ours else before.label_value)
    assert label_changes(after, ready) == []


def test_a_node_of_another_life_is_not_made_anew() -> None:
    (change,) = label_changes([NodeSnapshot("n1", "uid-7", None, False)], {"n1"})
    assert change.manifest()["metadata"] == {
        "name": "n1",
        "uid": "uid-7",
        "labels": {"entrepot.dev/store": "ready"},
    }
    (back,) = label_changes([NodeSnapshot("n1", "uid-7", "ready", True)], set())
    assert back.manifest()["metadata"]["labels"] == {}


def node(*managers: str) -> dict[str, Any]:
    owned: dict[str, Any] = {"f:metadata": {"f:labels": {"f:entrepot.dev/store": {}}}}
    return {
        "metadata": {
            "name": "n1",
            "uid": "u",
            "labels": {"entrepot.dev/store": "ready"},
            "managedFields": [
                {"manager": "kubelet", "fieldsV1": {"f:status": {}}},
                *({"manager": manager, "fieldsV1": owned} for manager in managers),
            ],
        }
    }


def test_whose_label_it_is() -> None:
    assert snapshots.node(node("entrepot-operator")) == NodeSnapshot("n1", "u", "ready", True)
    assert not snapshots.node(node("kubectl-label")).is_ours
    assert snapshots.node({"metadata": {"name": "n1", "uid": "u"}}) == NodeSnapshot("n1", "u", None, False)


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "labels": {"app.kubernetes.io/instance": "main"}},
        "spec": {"nodeName": "n1"},
        "status": status,
    }


READY = [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("status", "ready", "problem"),
    [
        ({"conditions": READY}, True, ""),
        ({}, False, ""),
        (
            {"containerStatuses": [{"name": "daemon", "state": {"waiting": {"reason": "ContainerCreating"}}}]},
            False,
            "",
        ),
        (
            {
                "containerStatuses": [
                    {"name": "daemon", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
                ]
            },
            False,
            "daemon: ImagePullBackOff: no such image",
        ),
        (
            {"initContainerStatuses": [{"name": "prepare", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            False,
            "prepare: CrashLoopBackOff",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, False, "Evicted: disk"),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}]},
            False,
            "Unschedulable: full",
        ),
    ],
)
def test_what_keeps_a_pod_from_being_ready(status: dict[str, Any], ready: bool, problem: str) -> None:
    snapshot = snapshots.pod(pod(**status))
    assert snapshot is not None
    assert (snapshot.ready, snapshot.problem, snapshot.node) == (ready, problem, "n1")


def test_a_pod_that_is_going_serves_nobody() -> None:
    going = pod(conditions=READY)
    going["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    assert snapshots.pod(going) is None
    assert snapshots.pod({"metadata": {"name": "p"}}) is None


def test_a_pod_that_waits_for_its_node_says_which() -> None:
    waiting = pod()
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    waiting["spec"] = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    snapshot = snapshots.pod(waiting)
    assert snapshot is not None
    assert snapshot.node == "n2"


def test_a_daemonset_is_read() -> None:
    status = {"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 1}
    metadata = {"name": "d", "generation": 2, "labels": {"app.kubernetes.io/instance": "main"}}
    assert snapshots.daemonset({"metadata": metadata, "status": status}) == snapshots.DaemonSetSnapshot(
        "main", 2, 2, 3, 1
    )
    assert snapshots.daemonset({"metadata": {"name": "d"}}) is None
