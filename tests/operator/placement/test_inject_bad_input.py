"""Input that ``inject`` refuses, and its messages."""

from __future__ import annotations

from typing import Any

import pytest
from entrepot import InvalidArgument, VersionMismatch
from entrepot_operator.placement import ClusterConfig, Node, inject

A = "aa" * 20
HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod(annotations: dict[str, Any] | None = None) -> dict[str, Any]:
    named = {f"entrepot.dev/{key}": value for key, value in (annotations or {}).items()}
    return {"kind": "Pod", "metadata": {"annotations": named}, "spec": {"containers": [{"name": "main"}]}}


def required_affinity(*selector_terms: Any) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(selector_terms)}}}


def test_a_damaged_record_is_reported() -> None:
    result = inject(pod(), [A], {A: {"n1": 1}})
    for text in (
        "",
        "{",
        "[]",
        '{"version":1}',
        '{"version":1,"added":{"required":[[[-1],{}]]}}',
        '{"version":1,"added":7}',
    ):
        result["metadata"]["annotations"]["entrepot.dev/injected"] = text
        with pytest.raises(InvalidArgument, match="damaged"):
            inject(result, [A], {})
    result["metadata"]["annotations"]["entrepot.dev/injected"] = '{"version":2}'
    with pytest.raises(VersionMismatch, match="version 2"):
        inject(result, [A], {})


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        ("requires", "orders", "40 hexadecimal digits"),
        ("locality", "always", "preferred, required, off"),
        ("store", "yes", "'yes'"),
        ("mounts", "", "on, off"),
        ("partitions", "0", "integer of 1 or more"),
        ("partitions", "٣", "integer of 1 or more"),
        ("first-ordinal", "-1", "integer of 0 or more"),
        ("requires", 5, "quotes"),
    ],
)
def test_annotations_that_cannot_be_understood(annotation: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as raised:
        inject(pod({annotation: value}), [], {})
    assert f"entrepot.dev/{annotation}" in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "Kubernetes client"),
        ({}, "a pod's spec"),
        ({"spec": []}, "a pod's spec"),
        ({"kind": "Deployment", "spec": {}}, "inject_document"),
        ({"spec": {"node_name": "x"}}, "node_name"),
        ({"spec": {}, "metadata": 5}, "metadata"),
        ({"spec": {}, "metadata": {"annotations": []}}, "annotations"),
        ({"spec": {"containers": {}}}, "containers"),
        ({"spec": {"containers": ["x"]}}, "containers"),
        ({"spec": {"affinity": []}}, "affinity"),
        ({"spec": {"affinity": {"nodeAffinity": {REQUIRED: []}}}}, f"{REQUIRED} must be a mapping"),
        ({"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": {}}}}}}, "nodeSelectorTerms"),
        ({"spec": {"affinity": required_affinity({"matchExpressions": [{"key": "x"}]})}}, "operator"),
        (
            {
                "spec": {
                    "affinity": required_affinity(
                        {"matchExpressions": [{"key": "x", "operator": "Like", "values": ["y"]}]}
                    )
                }
            },
            "Like",
        ),
        ({"spec": {"volumes": ["x"], "containers": [{"name": "main"}]}}, "volumes"),
    ],
)
def test_what_is_no_pod(given: Any, message: str) -> None:
    nodes = {"n1": Node({HOST: "n1", "x": "z"})}
    with pytest.raises(InvalidArgument, match=message):
        inject(given, [A], {A: {"n1": 1}}, nodes=nodes)


@pytest.mark.parametrize(
    "locations",
    [[], {A: 5}, {A: {"n1": -1}}, {A: {"n1": True}}, {A: {"n1": 1.5}}, {A: {"": 1}}, {A: {1: 1}}],
)
def test_locations_of_another_form(locations: Any) -> None:
    with pytest.raises(InvalidArgument, match="locations"):
        inject(pod(), [A], locations)


@pytest.mark.parametrize("required", [A, b"x" * 20, ["short"], [5]])
def test_required_that_are_no_ids(required: Any) -> None:
    with pytest.raises(InvalidArgument, match="required"):
        inject(pod(), required, {})


@pytest.mark.parametrize(
    "wrong", [{"socket_folder": "run"}, {"socket_folder": "/run/"}, {"socket": "a/b"}, {"socket": ""}]
)
def test_a_site_that_cannot_be(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        ClusterConfig(**wrong)
