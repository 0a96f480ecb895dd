"""Decisions about pods that are about to be created."""

from __future__ import annotations

import json
from typing import Any

import pytest
from entrepot_io.placement import Node, Site, inject
from entrepot_io.placement.names import ANNOTATIONS_MAX_BYTES, INJECTED
from entrepot_operator.admission.reviewing import Verdict, decide

A, B, C = ("aa" * 20, "bb" * 20, "cc" * 20)
PLACES = {A: {"n1": 100}, B: {"n2": 100}}
NODES = {name: Node({"kubernetes.io/hostname": name, "entrepot.dev/store": "ready"}) for name in ("n1", "n2")}


class Known:
    def __init__(self, places: Any = PLACES, synced: bool = True) -> None:
        self.synced = synced
        self._places = places

    def locations(self, ids: Any) -> Any:
        return {one: self._places[one] for one in ids if one in self._places}

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


def value(verdict: Verdict, path: str) -> Any:
    (found,) = [one["value"] for one in verdict.patch if one["path"] == path]
    return found


def hosts(verdict: Verdict) -> list[str]:
    affinity = value(verdict, "/spec/affinity")["nodeAffinity"]
    terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return [term["preference"]["matchExpressions"][0]["values"][0] for term in terms]


def test_a_pod_is_drawn_to_what_it_requires_and_finds_the_store() -> None:
    verdict = decide(pod(requires=A), Known(), Site())
    assert verdict.result == "injected"
    assert verdict.reasons == []
    assert hosts(verdict) == ["n1"]
    assert [one["name"] for one in value(verdict, "/spec/containers/0/env")] == ["ENTREPOT_ADDRESS", "ENTREPOT_NODE"]


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_of_an_indexed_job_is_narrowed_to_its_own_part(index: int) -> None:
    template = inject(pod(partitioned=f"{A},{B}", partitions="2"), None, PLACES, nodes=NODES)
    assert "n1" in str(template["spec"]["affinity"])
    assert "n2" in str(template["spec"]["affinity"])
    template["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": str(index)}
    assert hosts(decide(template, Known(), Site())) == [["n1"], ["n2"]][index]


def test_a_pod_of_a_stateful_set_is_narrowed_too() -> None:
    labels = {"apps.kubernetes.io/pod-index": "6"}
    verdict = decide(pod(labels, partitioned=f"{A},{B}", partitions="2", first_ordinal="5"), Known(), Site())
    assert hosts(verdict) == ["n2"]


def test_before_everything_was_read_pods_stay_as_they_are() -> None:
    verdict = decide(pod(requires=A), Known(synced=False), Site())
    assert (verdict.result, verdict.patch) == ("unknown", [])
    assert "not known now" in verdict.reasons[0].text


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
    verdict = decide(pod(**annotations), Known(), Site())
    assert (verdict.result, verdict.patch) == ("invalid", [])
    assert match in verdict.reasons[0].text


def test_unknown_objects_are_told_and_the_rest_is_done() -> None:
    verdict = decide(pod(requires=f"{A},{C}"), Known(), Site())
    assert hosts(verdict) == ["n1"]
    assert [one.code for one in verdict.reasons] == ["unknown-objects"]
    assert C in verdict.reasons[0].text


def test_lost_objects_are_told() -> None:
    verdict = decide(pod(requires=A), Known({A: {}}), Site())
    assert [one.code for one in verdict.reasons] == ["lost-objects"]
    assert "n1" not in str(verdict.patch)


def test_required_locality_that_cannot_be_had_leaves_the_pod_free() -> None:
    one = pod(requires=f"{A},{B}", locality="required")
    verdict = decide(one, Known(), Site())
    assert [reason.code for reason in verdict.reasons] == ["no-holder"]
    assert "required" not in "".join(value(verdict, "/spec/affinity")["nodeAffinity"])


def test_what_nobody_published_does_not_undo_what_was_known_from_elsewhere() -> None:
    template = inject(pod(requires=C), None, {C: {"n1": 5}})
    verdict = decide(template, Known(), Site())
    assert (verdict.result, verdict.patch) == ("unchanged", [])
    assert [one.code for one in verdict.reasons] == ["unknown-objects"]


def test_new_locations_replace_those_of_the_template() -> None:
    template = inject(pod(requires=A), None, {A: {"n2": 5}}, nodes=NODES)
    assert hosts(decide(template, Known(), Site())) == ["n1"]


def test_a_pod_of_a_host_that_knew_more_than_its_annotations_say_is_left_alone() -> None:
    made = inject(pod(store="preferred"), [A, B], PLACES)
    assert decide(made, Known({}), Site()) == Verdict("unchanged")


def test_pods_of_a_daemon_set_get_mounts_alone() -> None:
    verdict = decide(pod(owner="DaemonSet", requires=A), Known(), Site())
    assert {one["path"] for one in verdict.patch} == {
        "/metadata/annotations/entrepot.dev~1injected",
        "/spec/containers/0/env",
        "/spec/containers/0/volumeMounts",
        "/spec/volumes",
    }


def test_where_host_paths_are_forbidden_pods_are_drawn_alone() -> None:
    verdict = decide(pod(requires=A), Known(), Site(), mounts=False)
    assert hosts(verdict) == ["n1"]
    assert {one["path"] for one in verdict.patch} == {"/metadata/annotations/entrepot.dev~1injected", "/spec/affinity"}
    assert [one.code for one in verdict.reasons] == ["no-mounts"]
    # A mount that a manifest brought along is removed: the pod would be refused because of it.
    template = inject(pod(requires=A), None, PLACES, nodes=NODES)
    again = decide(template, Known(), Site(), mounts=False)
    assert {"op": "remove", "path": "/spec/volumes"} in again.patch


def test_a_record_that_the_api_server_would_not_take_is_not_written() -> None:
    room = ANNOTATIONS_MAX_BYTES - 200
    verdict = decide(pod(requires=A, reads="x" * room), Known(), Site())
    assert (verdict.result, verdict.patch) == ("invalid", [])
    assert "bytes" in verdict.reasons[0].text


def test_the_record_says_what_was_done() -> None:
    verdict = decide(pod(requires=A), Known(), Site())
    record = json.loads(value(verdict, f"/metadata/annotations/{INJECTED.replace('/', '~1')}"))
    assert record["objects"] == {"required": 1, "located": 1, "bytes": 100}
