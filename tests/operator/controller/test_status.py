"""The status of a Store, without a server."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from entrepot_io.placement.nodes import Node
from entrepot_operator.controller.observed import DaemonSetSeen, StorePod
from entrepot_operator.controller.status import Failure, Observed, conflicts, ready_nodes, status_of
from entrepot_operator.stores import Publishing, StoreSpec
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
SPEC = StoreSpec("entrepot:1", "8Gi")
SILENT = StoreSpec("entrepot:1", "8Gi", publish=Publishing(enabled=False))
NODES = ["node-a", "node-b", "node-c"]

pods = st.lists(
    st.builds(
        StorePod,
        name=st.sampled_from(["p1", "p2", "p3", "p4"]),
        store=st.just("main"),
        node=st.sampled_from(["", *NODES]),
        ready=st.booleans(),
        trouble=st.sampled_from(["", "daemon: CrashLoopBackOff"]),
    ),
    max_size=4,
)
daemonsets = st.none() | st.builds(
    DaemonSetSeen, st.just("main"), st.integers(1, 3), st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)
)
observations = st.builds(
    Observed,
    generation=st.integers(1, 5),
    spec=st.sampled_from([None, SPEC, SILENT]),
    daemonset=daemonsets,
    pods=pods,
    heard=st.frozensets(st.sampled_from(NODES)),
    published=st.integers(0, 10),
    failures=st.lists(st.sampled_from([Failure("Forbidden", "no"), Failure("Invalid", "x" * 3000)]), max_size=2),
)


def conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in status["conditions"]}


def seen(*ready: str, wanted: int = 2, **changes: Any) -> Observed:
    there = [StorePod(f"p-{node}", "main", node, node in ready, "") for node in NODES[:wanted]]
    settled = {
        "generation": 1,
        "spec": SPEC,
        "daemonset": DaemonSetSeen("main", 1, 1, wanted, wanted),
        "pods": there,
        "heard": frozenset(ready),
    }
    return Observed(**{**settled, **changes})


@given(observations)
def test_each_condition_is_there_once_and_fits_the_schema(one: Observed) -> None:
    status = status_of(one, NOW)
    assert sorted(conditions(status)) == ["Degraded", "Progressing", "Ready"]
    assert len(status["conditions"]) == 3
    for each in status["conditions"]:
        assert each["status"] in ("True", "False", "Unknown")
        assert each["observedGeneration"] == status["observedGeneration"] == one.generation
        assert each["reason"].isalpha()
        assert 0 < len(each["message"]) <= 2048
    assert 0 <= status["readyNodes"] <= len(NODES)


@given(observations)
def test_nothing_changes_while_nothing_changes(one: Observed) -> None:
    first = status_of(one, NOW)
    again = Observed(**{**vars(one), "before": first["conditions"]})
    assert status_of(again, NOW + timedelta(hours=1)) == first


@given(observations, observations)
def test_the_time_changes_exactly_when_the_status_does(one: Observed, other: Observed) -> None:
    first = status_of(one, NOW)
    later = NOW + timedelta(hours=1)
    second = conditions(status_of(Observed(**{**vars(other), "before": first["conditions"]}), later))
    for kind, before in conditions(first).items():
        flipped = before["status"] != second[kind]["status"]
        assert (second[kind]["lastTransitionTime"] != before["lastTransitionTime"]) == flipped


@given(observations)
def test_ready_means_that_every_wanted_node_is(one: Observed) -> None:
    status = status_of(one, NOW)
    if conditions(status)["Ready"]["status"] == "True":
        assert one.daemonset is not None
        assert 0 < one.daemonset.wanted <= status["readyNodes"]


@given(observations)
def test_what_is_wrong_is_never_kept_quiet(one: Observed) -> None:
    degraded = conditions(status_of(one, NOW))["Degraded"]["status"] == "True"
    assert degraded >= bool(one.failures or any(pod.trouble for pod in one.pods))


def test_a_store_that_is_as_it_should_be() -> None:
    status = status_of(seen("node-a", "node-b", published=7), NOW)
    told = conditions(status)
    assert [told[kind]["status"] for kind in ("Ready", "Progressing", "Degraded")] == ["True", "False", "False"]
    assert (status["wantedNodes"], status["readyNodes"], status["publishedObjects"]) == (2, 2, 7)


def test_a_store_that_starts() -> None:
    told = conditions(status_of(seen("node-a"), NOW))
    assert told["Ready"]["message"] == "1 of 2 nodes have their store; not yet node-b"
    assert (told["Progressing"]["status"], told["Progressing"]["reason"]) == ("True", "Starting")
    assert told["Degraded"]["status"] == "False"


def test_a_change_that_is_rolled_out() -> None:
    told = conditions(status_of(seen("node-a", "node-b", daemonset=DaemonSetSeen("main", 2, 2, 2, 1)), NOW))
    assert told["Progressing"]["message"] == "1 of 2 nodes have what the spec says now"
    unseen = conditions(status_of(seen(daemonset=DaemonSetSeen("main", 3, 2, 2, 1)), NOW))
    assert unseen["Ready"]["status"] == "Unknown"


def test_a_store_whose_publisher_is_silent() -> None:
    told = conditions(status_of(seen("node-a", "node-b", heard=frozenset({"node-a"})), NOW))
    assert told["Ready"]["status"] == "False"
    assert told["Degraded"]["reason"] == "NotHeard"
    assert "node node-b: the store answers, but its publisher" in told["Degraded"]["message"]
    off = conditions(status_of(seen("node-a", "node-b", spec=SILENT, heard=frozenset()), NOW))
    assert off["Ready"]["status"] == "True"
    assert off["Degraded"]["status"] == "False"


def test_no_node_fits() -> None:
    assert conditions(status_of(seen(wanted=0), NOW))["Ready"]["reason"] == "NoNodes"


def test_a_pod_without_a_node_serves_none() -> None:
    assert ready_nodes(SILENT, [StorePod("p", "main", "", True, "")], frozenset()) == frozenset()


def test_two_stores_cannot_listen_in_one_folder_of_a_node() -> None:
    nodes = {"node-a": Node({"pool": "data"}), "node-b": Node({})}
    data = StoreSpec("i", "1Gi", node_selector={"pool": "data"})
    found = conflicts("young", data, {"old": StoreSpec("i", "1Gi")}, nodes)
    assert found is not None
    assert found.reason == "SocketFolderTaken"
    assert "the Store old has the socketFolder /run/entrepot on node-a too" in found.message
    elsewhere = StoreSpec("i", "1Gi", node_selector={"pool": "other"})
    assert conflicts("young", data, {"old": elsewhere}, nodes) is None
    assert conflicts("young", data, {"old": StoreSpec("i", "1Gi", socket_folder="/run/b")}, nodes) is None
    assert conflicts("young", data, {"old": data}, None) is None
