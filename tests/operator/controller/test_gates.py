"""Release of held pods, without a server."""

from __future__ import annotations

import copy
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from entrepot_operator.controller.state.gates import GatedPod, decide, gate_removal_patch, parse_gated_pod
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
A, B, C = "aa" * 20, "bb" * 20, "cc" * 20
GATE = "entrepot.dev/objects"


def pod(annotations: dict[str, str], *, labels: dict[str, str] | None = None) -> dict[str, Any]:
    prefixed = {f"entrepot.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "creationTimestamp": "2030-01-01T12:00:00Z",
            "annotations": prefixed,
            "labels": labels or {},
        },
        "spec": {"schedulingGates": [{"name": GATE}], "containers": [{"name": "c"}]},
    }


def gated_pod(**annotations: str) -> GatedPod:
    parsed = parse_gated_pod(pod(annotations))
    assert parsed is not None
    return parsed


def test_a_pod_goes_when_all_that_it_requires_is_there() -> None:
    waiting_pod = gated_pod(requires=f"{A},{B}")
    waits = decide(waiting_pod, {A: {"n1": 5}}, NOW)
    assert not waits.lift
    (record,) = waits.events
    assert (record.type, record.reason) == ("Normal", "WaitingForObjects")
    assert record.message == f"waiting for 1 of 2 objects: not published: {B}"
    assert waits.retry_seconds == 600
    goes = decide(waiting_pod, {A: {"n1": 5}, B: {"n2": 0}}, NOW)
    assert goes.lift
    assert [record.reason for record in goes.events] == ["ObjectsAvailable"]


def test_a_pod_that_is_being_deleted_or_has_no_gate_of_ours_is_not_held() -> None:
    deleted = pod({"requires": A})
    deleted["metadata"]["deletionTimestamp"] = "2030-01-01T12:00:00Z"
    assert parse_gated_pod(deleted) is None
    free = pod({"requires": A})
    free["spec"]["schedulingGates"] = [{"name": "other.dev/gate"}]
    assert parse_gated_pod(free) is None


def test_lost_objects_are_named_in_a_warning() -> None:
    records = decide(gated_pod(requires=f"{A},{B}"), {A: {"n1": 5}, B: {}}, NOW).events
    assert [(record.type, record.reason) for record in records] == [
        ("Normal", "WaitingForObjects"),
        ("Warning", "ObjectsLost"),
    ]
    assert B in records[1].message


def test_a_pod_goes_when_its_time_is_over() -> None:
    waiting_pod = gated_pod(requires=A, objects_timeout="90s")
    assert not decide(waiting_pod, {}, NOW + timedelta(seconds=89)).lift
    over = decide(waiting_pod, {}, NOW + timedelta(seconds=90))
    assert over.lift
    (record,) = over.events
    assert (record.type, record.reason) == ("Warning", "ObjectsTimedOut")
    assert record.message == (
        f"the gate is lifted after 90 s; the pod runs without its required objects: not published: {A}"
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("600", 600), ("90s", 90), ("10min", 600), ("2h", 7200), ("1d", 86400), ("0", 0)]
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert gated_pod(requires=A, objects_timeout=text).timeout_seconds == seconds


def test_a_time_is_bounded() -> None:
    assert gated_pod(requires=A, objects_timeout="999999999d").deadline.year < 2032


@pytest.mark.parametrize(
    ("annotations", "match"),
    [
        ({"requires": "orders"}, "entrepot.dev/requires"),
        ({"requires": A, "objects_timeout": "soon"}, "a duration such as 90s, 10min or 2h, not 'soon'"),
        ({"requires": "{{inputs.parameters.id}}"}, "was not rendered"),
        ({"partitioned": A, "partitions": "none"}, "must be an integer"),
    ],
)
def test_what_cannot_be_understood_holds_nobody(annotations: dict[str, str], match: str) -> None:
    decision = decide(gated_pod(**annotations), {}, NOW)
    assert decision.lift
    (record,) = decision.events
    assert (record.type, record.reason) == ("Warning", "ObjectsNotUnderstood")
    assert match in record.message


def test_a_pod_that_requires_nothing_goes() -> None:
    assert decide(gated_pod(), {}, NOW).lift


def test_a_pod_of_an_indexed_job_waits_for_its_own_part() -> None:
    waiting_pod = parse_gated_pod(
        pod({"partitioned": f"{A},{B},{C}"}, labels={"batch.kubernetes.io/job-completion-index": "1"})
    )
    assert waiting_pod is not None
    assert waiting_pod.ids == (B,)


@pytest.mark.parametrize("gates", [["other"], []])
def test_other_pods_are_ignored(gates: list[str]) -> None:
    manifest = pod({"requires": A})
    manifest["spec"]["schedulingGates"] = [{"name": name} for name in gates]
    assert parse_gated_pod(manifest) is None
    assert gate_removal_patch(manifest) == []


def test_only_our_gate_goes() -> None:
    manifest = pod({"requires": A})
    manifest["spec"]["schedulingGates"] = [{"name": name} for name in ("first", GATE, "last")]
    assert gate_removal_patch(manifest) == [
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": GATE},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    ]


ids = st.lists(st.sampled_from([A, B, C]), unique=True)
locations = st.dictionaries(
    st.sampled_from([A, B, C]), st.dictionaries(st.sampled_from(["n1", "n2"]), st.integers(0, 9), max_size=2)
)


@given(ids, locations, st.integers(0, 2000))
def test_every_pod_is_released_at_the_timeout_and_none_without_reason(
    required: list[str], known_locations: dict[str, dict[str, int]], seconds: int
) -> None:
    waiting_pod, at = gated_pod(requires=",".join(required)), NOW + timedelta(seconds=seconds)
    before = copy.deepcopy(known_locations)
    decision = decide(waiting_pod, known_locations, at)
    all_located = all(known_locations.get(each) for each in required)
    assert decision.lift == (all_located or seconds >= 600)
    assert decision.events  # in any case, the pod gets a reason
    assert decision.lift or 0 < decision.retry_seconds <= 600
    assert known_locations == before
