"""Node labels, and what the operator keeps of pods, DaemonSets and nodes, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from entrepot_operator.controller import observed
from entrepot_operator.controller.labels import changes
from entrepot_operator.controller.observed import NodeSeen
from hypothesis import given
from hypothesis import strategies as st

NAMES = ["n1", "n2", "n3"]
nodes = st.lists(
    st.builds(NodeSeen, st.sampled_from(NAMES), st.just("u"), st.sampled_from([None, "ready", "other"]), st.booleans()),
    unique_by=lambda one: one.name,
)


def applied(one: NodeSeen, labelled: bool) -> NodeSeen:
    """Apply a change as server-side apply would: our fields that we omit are removed, those of others stay."""
    if labelled:
        return NodeSeen(one.name, one.uid, "ready", True)
    return NodeSeen(one.name, one.uid, None if one.ours else one.value, False)


@given(nodes, st.frozensets(st.sampled_from(NAMES)))
def test_changes_lead_to_what_is_wanted_and_then_there_are_none(there: list[NodeSeen], ready: frozenset[str]) -> None:
    wanted = {one.node: one.labelled for one in changes(there, ready)}
    after = [applied(one, wanted[one.name]) if one.name in wanted else one for one in there]
    for before, one in zip(there, after, strict=True):
        if one.name in ready:
            assert one.value == "ready"
        else:
            assert not one.ours
            assert one.value == (None if before.ours else before.value)
    assert changes(after, ready) == []


def test_a_node_of_another_life_is_not_made_anew() -> None:
    (change,) = changes([NodeSeen("n1", "uid-7", None, False)], {"n1"})
    assert change.manifest()["metadata"] == {
        "name": "n1",
        "uid": "uid-7",
        "labels": {"entrepot.dev/store": "ready"},
    }
    (back,) = changes([NodeSeen("n1", "uid-7", "ready", True)], set())
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
                *({"manager": one, "fieldsV1": owned} for one in managers),
            ],
        }
    }


def test_whose_label_it_is() -> None:
    assert observed.node(node("entrepot-operator")) == NodeSeen("n1", "u", "ready", True)
    assert not observed.node(node("kubectl-label")).ours
    assert observed.node({"metadata": {"name": "n1", "uid": "u"}}) == NodeSeen("n1", "u", None, False)


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "labels": {"app.kubernetes.io/instance": "main"}},
        "spec": {"nodeName": "n1"},
        "status": status,
    }


READY = [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("status", "ready", "trouble"),
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
def test_what_keeps_a_pod_from_being_ready(status: dict[str, Any], ready: bool, trouble: str) -> None:
    found = observed.pod(pod(**status))
    assert found is not None
    assert (found.ready, found.trouble, found.node) == (ready, trouble, "n1")


def test_a_pod_that_is_going_serves_nobody() -> None:
    going = pod(conditions=READY)
    going["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    assert observed.pod(going) is None
    assert observed.pod({"metadata": {"name": "p"}}) is None


def test_a_pod_that_waits_for_its_node_says_which() -> None:
    waiting = pod()
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    waiting["spec"] = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    found = observed.pod(waiting)
    assert found is not None
    assert found.node == "n2"


def test_a_daemonset_is_read() -> None:
    status = {"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 1}
    metadata = {"name": "d", "generation": 2, "labels": {"app.kubernetes.io/instance": "main"}}
    assert observed.daemonset({"metadata": metadata, "status": status}) == observed.DaemonSetSeen("main", 2, 2, 3, 1)
    assert observed.daemonset({"metadata": {"name": "d"}}) is None
