"""The status of a Store, without a server."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from entrepot_operator.controller.state.snapshots import DaemonSetSnapshot, StorePodSnapshot
from entrepot_operator.controller.state.status import Failure, StoreSnapshot, find_conflict, ready_nodes, status_of
from entrepot_operator.kubernetes.store_spec import PublishSpec, StoreSpec
from entrepot_operator.placement.nodes import Node
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
SPEC = StoreSpec("entrepot:1", "8Gi")
SILENT = StoreSpec("entrepot:1", "8Gi", publish=PublishSpec(enabled=False))
NODES = ["node-a", "node-b", "node-c"]

pods = st.lists(
    st.builds(
        StorePodSnapshot,
        name=st.sampled_from(["p1", "p2", "p3", "p4"]),
        store=st.just("main"),
        node=st.sampled_from(["", *NODES]),
        ready=st.booleans(),
        problem=st.sampled_from(["", "daemon: CrashLoopBackOff"]),
    ),
    max_size=4,
)
daemonsets = st.none() | st.builds(
    DaemonSetSnapshot, st.just("main"), st.integers(1, 3), st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)
)
observations = st.builds(
    StoreSnapshot,
    generation=st.integers(1, 5),
    spec=st.sampled_from([None, SPEC, SILENT]),
    daemonset=daemonsets,
    pods=pods,
    live_nodes=st.frozensets(st.sampled_from(NODES)),
    published_objects=st.integers(0, 10),
    failures=st.lists(st.sampled_from([Failure("Forbidden", "no"), Failure("Invalid", "x" * 3000)]), max_size=2),
)


def conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in status["conditions"]}


def observed_with(*ready: str, desired: int = 2, **changes: Any) -> StoreSnapshot:
    store_pods = [StorePodSnapshot(f"p-{node}", "main", node, node in ready, "") for node in NODES[:desired]]
    settled = {
        "generation": 1,
        "spec": SPEC,
        "daemonset": DaemonSetSnapshot("main", 1, 1, desired, desired),
        "pods": store_pods,
        "live_nodes": frozenset(ready),
    }
    return StoreSnapshot(**{**settled, **changes})


@given(observations)
def test_each_condition_is_there_once_and_fits_the_schema(observed: StoreSnapshot) -> None:
    status = status_of(observed, NOW)
    assert sorted(conditions(status)) == ["Degraded", "Progressing", "Ready"]
    assert len(status["conditions"]) == 3
    for each in status["conditions"]:
        assert each["status"] in ("True", "False", "Unknown")
        assert each["observedGeneration"] == status["observedGeneration"] == observed.generation
        assert each["reason"].isalpha()
        assert 0 < len(each["message"]) <= 2048
    assert 0 <= status["readyNodes"] <= len(NODES)


@given(observations)
def test_nothing_changes_while_nothing_changes(observed: StoreSnapshot) -> None:
    first = status_of(observed, NOW)
    again = StoreSnapshot(**{**vars(observed), "conditions": first["conditions"]})
    assert status_of(again, NOW + timedelta(hours=1)) == first


@given(observations, observations)
def test_the_time_changes_exactly_when_the_status_does(observed: StoreSnapshot, other: StoreSnapshot) -> None:
    first = status_of(observed, NOW)
    later = NOW + timedelta(hours=1)
    second = conditions(status_of(StoreSnapshot(**{**vars(other), "conditions": first["conditions"]}), later))
    for kind, before in conditions(first).items():
        flipped = before["status"] != second[kind]["status"]
        assert (second[kind]["lastTransitionTime"] != before["lastTransitionTime"]) == flipped


@given(observations)
def test_ready_means_that_every_wanted_node_is(observed: StoreSnapshot) -> None:
    status = status_of(observed, NOW)
    if conditions(status)["Ready"]["status"] == "True":
        assert observed.daemonset is not None
        assert 0 < observed.daemonset.desired_nodes <= status["readyNodes"]


@given(observations)
def test_what_is_wrong_is_never_kept_quiet(observed: StoreSnapshot) -> None:
    degraded = conditions(status_of(observed, NOW))["Degraded"]["status"] == "True"
    assert degraded >= bool(observed.failures or any(pod.problem for pod in observed.pods))


def test_a_store_that_is_as_it_should_be() -> None:
    status = status_of(observed_with("node-a", "node-b", published_objects=7), NOW)
    by_type = conditions(status)
    assert [by_type[kind]["status"] for kind in ("Ready", "Progressing", "Degraded")] == ["True", "False", "False"]
    assert (status["wantedNodes"], status["readyNodes"], status["publishedObjects"]) == (2, 2, 7)


def test_a_store_that_starts() -> None:
    by_type = conditions(status_of(observed_with("node-a"), NOW))
    assert by_type["Ready"]["message"] == "1 of 2 nodes have a ready store; not ready: node-b"
    assert (by_type["Progressing"]["status"], by_type["Progressing"]["reason"]) == ("True", "Starting")
    assert by_type["Degraded"]["status"] == "False"


def test_a_change_that_is_rolled_out() -> None:
    by_type = conditions(
        status_of(observed_with("node-a", "node-b", daemonset=DaemonSetSnapshot("main", 2, 2, 2, 1)), NOW)
    )
    assert by_type["Progressing"]["message"] == "1 of 2 nodes match the current spec"
    unseen = conditions(status_of(observed_with(daemonset=DaemonSetSnapshot("main", 3, 2, 2, 1)), NOW))
    assert unseen["Ready"]["status"] == "Unknown"


def test_a_store_whose_publisher_is_silent() -> None:
    by_type = conditions(status_of(observed_with("node-a", "node-b", live_nodes=frozenset({"node-a"})), NOW))
    assert by_type["Ready"]["status"] == "False"
    assert by_type["Degraded"]["reason"] == "NotHeard"
    assert "node node-b: the store responds, but its publisher" in by_type["Degraded"]["message"]
    off = conditions(status_of(observed_with("node-a", "node-b", spec=SILENT, live_nodes=frozenset()), NOW))
    assert off["Ready"]["status"] == "True"
    assert off["Degraded"]["status"] == "False"


def test_no_node_fits() -> None:
    assert conditions(status_of(observed_with(desired=0), NOW))["Ready"]["reason"] == "NoNodes"


def test_a_pod_without_a_node_serves_none() -> None:
    assert ready_nodes(SILENT, [StorePodSnapshot("p", "main", "", True, "")], frozenset()) == frozenset()


def test_two_stores_cannot_listen_in_one_folder_of_a_node() -> None:
    nodes = {"node-a": Node({"pool": "data"}), "node-b": Node({})}
    data = StoreSpec("i", "1Gi", node_selector={"pool": "data"})
    conflict = find_conflict("young", data, {"old": StoreSpec("i", "1Gi")}, nodes)
    assert conflict is not None
    assert conflict.reason == "SocketFolderTaken"
    assert "Store old already uses socketFolder /run/entrepot on node-a" in conflict.message
    elsewhere = StoreSpec("i", "1Gi", node_selector={"pool": "other"})
    assert find_conflict("young", data, {"old": elsewhere}, nodes) is None
    assert find_conflict("young", data, {"old": StoreSpec("i", "1Gi", socket_folder="/run/b")}, nodes) is None
    assert find_conflict("young", data, {"old": data}, None) is None
