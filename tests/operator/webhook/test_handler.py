"""Decisions about pods that are about to be created."""

from __future__ import annotations

import json
from typing import Any

import pytest
from entrepot_operator.placement import ClusterConfig, Node, inject
from entrepot_operator.placement.names import ANNOTATIONS_MAX_BYTES, INJECTED
from entrepot_operator.webhook.handler import Decision, decide

A, B, C = ("aa" * 20, "bb" * 20, "cc" * 20)
LOCATIONS = {A: {"n1": 100}, B: {"n2": 100}}
NODES = {name: Node({"kubernetes.io/hostname": name, "entrepot.dev/store": "ready"}) for name in ("n1", "n2")}


class FakeClusterView:
    def __init__(self, locations: Any = LOCATIONS, synced: bool = True) -> None:
        self.synced = synced
        self._locations = locations

    def locations(self, ids: Any) -> Any:
        return {object_id: self._locations[object_id] for object_id in ids if object_id in self._locations}

    def nodes(self) -> Any:
        return NODES


def pod(labels: Any = None, owner: str | None = None, **annotations: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": "p",
        "annotations": {f"entrepot.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
    }
    if labels:
        metadata["labels"] = labels
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "name": "maker", "controller": True}]
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "main", "image": "i"}]}}


def value(decision: Decision, path: str) -> Any:
    (match,) = [operation["value"] for operation in decision.patch if operation["path"] == path]
    return match


def hosts(decision: Decision) -> list[str]:
    affinity = value(decision, "/spec/affinity")["nodeAffinity"]
    terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return [term["preference"]["matchExpressions"][0]["values"][0] for term in terms]


def test_a_pod_is_drawn_to_what_it_requires_and_finds_the_store() -> None:
    decision = decide(pod(requires=A), FakeClusterView(), ClusterConfig())
    assert decision.result == "injected"
    assert decision.warnings == []
    assert hosts(decision) == ["n1"]
    assert [variable["name"] for variable in value(decision, "/spec/containers/0/env")] == [
        "ENTREPOT_ADDRESS",
        "ENTREPOT_NODE",
    ]


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_of_an_indexed_job_is_narrowed_to_its_own_part(index: int) -> None:
    template = inject(pod(partitioned=f"{A},{B}", partitions="2"), None, LOCATIONS, nodes=NODES)
    assert "n1" in str(template["spec"]["affinity"])
    assert "n2" in str(template["spec"]["affinity"])
    template["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": str(index)}
    assert hosts(decide(template, FakeClusterView(), ClusterConfig())) == [["n1"], ["n2"]][index]


def test_a_pod_of_a_stateful_set_is_narrowed_too() -> None:
    labels = {"apps.kubernetes.io/pod-index": "6"}
    decision = decide(
        pod(labels, partitioned=f"{A},{B}", partitions="2", first_ordinal="5"), FakeClusterView(), ClusterConfig()
    )
    assert hosts(decision) == ["n2"]


def test_before_everything_was_read_pods_stay_as_they_are() -> None:
    decision = decide(pod(requires=A), FakeClusterView(synced=False), ClusterConfig())
    assert (decision.result, decision.patch) == ("unknown", [])
    assert "locations are not known" in decision.warnings[0].text


@pytest.mark.parametrize(
    ("annotations", "match"),
    [
        ({"requires": "nonsense"}, "nonsense"),
        ({"locality": "sometimes"}, "sometimes"),
        ({"containers": "nobody"}, "nobody"),
        ({"requires": A, "injected": "{}"}, "damaged"),
        ({"requires": A, "injected": '{"version": 99}'}, "99"),
    ],
)
def test_annotations_that_cannot_be_understood_leave_the_pod_as_it_is(annotations: Any, match: str) -> None:
    decision = decide(pod(**annotations), FakeClusterView(), ClusterConfig())
    assert (decision.result, decision.patch) == ("invalid", [])
    assert match in decision.warnings[0].text


def test_unknown_objects_are_reported_and_the_rest_is_injected() -> None:
    decision = decide(pod(requires=f"{A},{C}"), FakeClusterView(), ClusterConfig())
    assert hosts(decision) == ["n1"]
    assert [warning.code for warning in decision.warnings] == ["unknown-objects"]
    assert C in decision.warnings[0].text


def test_lost_objects_are_reported() -> None:
    decision = decide(pod(requires=A), FakeClusterView({A: {}}), ClusterConfig())
    assert [warning.code for warning in decision.warnings] == ["lost-objects"]
    assert "n1" not in str(decision.patch)


def test_required_locality_that_cannot_be_had_leaves_the_pod_free() -> None:
    manifest = pod(requires=f"{A},{B}", locality="required")
    decision = decide(manifest, FakeClusterView(), ClusterConfig())
    assert [warning.code for warning in decision.warnings] == ["no-holder"]
    assert "required" not in "".join(value(decision, "/spec/affinity")["nodeAffinity"])


def test_what_nobody_published_does_not_undo_what_was_known_from_elsewhere() -> None:
    template = inject(pod(requires=C), None, {C: {"n1": 5}})
    decision = decide(template, FakeClusterView(), ClusterConfig())
    assert (decision.result, decision.patch) == ("unchanged", [])
    assert [warning.code for warning in decision.warnings] == ["unknown-objects"]


def test_new_locations_replace_those_of_the_template() -> None:
    template = inject(pod(requires=A), None, {A: {"n2": 5}}, nodes=NODES)
    assert hosts(decide(template, FakeClusterView(), ClusterConfig())) == ["n1"]


def test_a_pod_of_a_host_that_knew_more_than_its_annotations_say_is_left_alone() -> None:
    result = inject(pod(store="preferred"), [A, B], LOCATIONS)
    assert decide(result, FakeClusterView({}), ClusterConfig()) == Decision("unchanged")


def test_pods_of_a_daemon_set_get_mounts_alone() -> None:
    decision = decide(pod(owner="DaemonSet", requires=A), FakeClusterView(), ClusterConfig())
    assert {operation["path"] for operation in decision.patch} == {
        "/metadata/annotations/entrepot.dev~1injected",
        "/spec/containers/0/env",
        "/spec/containers/0/volumeMounts",
        "/spec/volumes",
    }


def test_where_host_paths_are_forbidden_pods_are_drawn_alone() -> None:
    decision = decide(pod(requires=A), FakeClusterView(), ClusterConfig(), mounts=False)
    assert hosts(decision) == ["n1"]
    assert {item["path"] for item in decision.patch} == {
        "/metadata/annotations/entrepot.dev~1injected",
        "/spec/affinity",
    }
    assert [item.code for item in decision.warnings] == ["no-mounts"]
    # A mount that a manifest brought along is removed: the pod would be refused because of it.
    template = inject(pod(requires=A), None, LOCATIONS, nodes=NODES)
    again = decide(template, FakeClusterView(), ClusterConfig(), mounts=False)
    assert {"op": "remove", "path": "/spec/volumes"} in again.patch


def test_a_record_that_the_api_server_would_not_take_is_not_written() -> None:
    room = ANNOTATIONS_MAX_BYTES - 200
    decision = decide(pod(requires=A, reads="x" * room), FakeClusterView(), ClusterConfig())
    assert (decision.result, decision.patch) == ("invalid", [])
    assert "bytes" in decision.warnings[0].text


def test_the_record_says_what_was_done() -> None:
    decision = decide(pod(requires=A), FakeClusterView(), ClusterConfig())
    record = json.loads(value(decision, f"/metadata/annotations/{INJECTED.replace('/', '~1')}"))
    assert record["objects"] == {"required": 1, "located": 1, "bytes": 100}
