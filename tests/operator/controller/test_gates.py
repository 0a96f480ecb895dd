"""Which held pods are released, without a server."""

from __future__ import annotations

import copy
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from entrepot_operator.controller.gates import GatedPod, decide, gated, lifting
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
A, B, C = "aa" * 20, "bb" * 20, "cc" * 20
GATE = "entrepot.dev/objects"


def pod(annotations: dict[str, str], *, labels: dict[str, str] | None = None) -> dict[str, Any]:
    said = {f"entrepot.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "creationTimestamp": "2030-01-01T12:00:00Z",
            "annotations": said,
            "labels": labels or {},
        },
        "spec": {"schedulingGates": [{"name": GATE}], "containers": [{"name": "c"}]},
    }


def held(**annotations: str) -> GatedPod:
    found = gated(pod(annotations))
    assert found is not None
    return found


def test_a_pod_goes_when_all_that_it_requires_is_there() -> None:
    one = held(requires=f"{A},{B}")
    waits = decide(one, {A: {"n1": 5}}, NOW)
    assert not waits.lift
    (told,) = waits.told
    assert (told.type, told.reason) == ("Normal", "WaitingForObjects")
    assert told.message == f"1 of 2 objects are awaited: not published: {B}"
    assert waits.again == 600
    goes = decide(one, {A: {"n1": 5}, B: {"n2": 0}}, NOW)
    assert goes.lift
    assert [told.reason for told in goes.told] == ["ObjectsAvailable"]


def test_lost_objects_are_named_in_a_warning() -> None:
    told = decide(held(requires=f"{A},{B}"), {A: {"n1": 5}, B: {}}, NOW).told
    assert [(one.type, one.reason) for one in told] == [("Normal", "WaitingForObjects"), ("Warning", "ObjectsLost")]
    assert B in told[1].message


def test_a_pod_goes_when_its_time_is_over() -> None:
    one = held(requires=A, objects_timeout="90s")
    assert not decide(one, {}, NOW + timedelta(seconds=89)).lift
    over = decide(one, {}, NOW + timedelta(seconds=90))
    assert over.lift
    (told,) = over.told
    assert (told.type, told.reason) == ("Warning", "ObjectsTimedOut")
    assert told.message == (
        f"the gate is lifted after 90 s, and the pod runs without what it requires: not published: {A}"
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("600", 600), ("90s", 90), ("10min", 600), ("2h", 7200), ("1d", 86400), ("0", 0)]
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert held(requires=A, objects_timeout=text).seconds == seconds


def test_a_time_is_bounded() -> None:
    assert held(requires=A, objects_timeout="999999999d").until.year < 2032


@pytest.mark.parametrize(
    ("annotations", "match"),
    [
        ({"requires": "orders"}, "entrepot.dev/requires"),
        ({"requires": A, "objects_timeout": "soon"}, "a time such as 90s, 10min or 2h, not 'soon'"),
        ({"requires": "{{inputs.parameters.id}}"}, "was never filled in"),
        ({"partitioned": A, "partitions": "none"}, "a whole number"),
    ],
)
def test_what_cannot_be_understood_holds_nobody(annotations: dict[str, str], match: str) -> None:
    decision = decide(held(**annotations), {}, NOW)
    assert decision.lift
    (told,) = decision.told
    assert (told.type, told.reason) == ("Warning", "ObjectsNotUnderstood")
    assert match in told.message


def test_a_pod_that_requires_nothing_goes() -> None:
    assert decide(held(), {}, NOW).lift


def test_a_pod_of_an_indexed_job_waits_for_its_own_part() -> None:
    one = gated(pod({"partitioned": f"{A},{B},{C}"}, labels={"batch.kubernetes.io/job-completion-index": "1"}))
    assert one is not None
    assert one.ids == (B,)


@pytest.mark.parametrize("gates", [["other"], []])
def test_other_pods_are_none_of_ours(gates: list[str]) -> None:
    one = pod({"requires": A})
    one["spec"]["schedulingGates"] = [{"name": name} for name in gates]
    assert gated(one) is None
    assert lifting(one) == []


def test_only_our_gate_goes() -> None:
    one = pod({"requires": A})
    one["spec"]["schedulingGates"] = [{"name": name} for name in ("first", GATE, "last")]
    assert lifting(one) == [
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": GATE},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    ]


ids = st.lists(st.sampled_from([A, B, C]), unique=True)
locations = st.dictionaries(
    st.sampled_from([A, B, C]), st.dictionaries(st.sampled_from(["n1", "n2"]), st.integers(0, 9), max_size=2)
)


@given(ids, locations, st.integers(0, 2000))
def test_no_pod_is_held_for_ever_and_none_goes_for_nothing(
    required: list[str], known: dict[str, dict[str, int]], seconds: int
) -> None:
    one, at = held(requires=",".join(required)), NOW + timedelta(seconds=seconds)
    before = copy.deepcopy(known)
    decision = decide(one, known, at)
    there = all(known.get(each) for each in required)
    assert decision.lift == (there or seconds >= 600)
    assert decision.told  # in any case, the pod gets a reason
    assert decision.lift or 0 < decision.again <= 600
    assert known == before
