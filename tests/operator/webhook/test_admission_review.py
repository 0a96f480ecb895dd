"""Decoding of admission reviews and encoding of the responses."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_operator.webhook.admission_review import encode_response, parse_review

POD: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": []}}


def body(**changes: Any) -> bytes:
    request = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "team",
        "object": POD,
        **changes,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def test_a_review_is_read() -> None:
    review = parse_review(body(dryRun=True))
    assert (review.uid, review.namespace, review.pod, review.dry_run) == ("u-1", "team", POD, True)
    assert not parse_review(body()).dry_run


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[" * 100_000, "RecursionError"),
        (b"[]", "AdmissionReview"),
        (b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}', "v1beta1"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "no request"),
        (body(uid=""), "no valid uid"),
        (body(uid=5), "no valid uid"),
        (body(operation="DELETE"), "DELETE"),
        (body(kind={"group": "apps", "version": "v1", "kind": "Deployment"}), "Deployment"),
        (body(kind=None), "creation"),
        (body(object=None), "no pod"),
        (body(object={"metadata": {}}), "no pod"),
        (body(object={"spec": {}, "metadata": []}), "no pod"),
    ],
)
def test_anything_else_is_a_typed_error(given: bytes, match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        parse_review(given)


def test_an_answer_always_lets_the_pod_pass() -> None:
    response = json.loads(encode_response("u-1"))
    assert response == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }


def test_a_patch_and_warnings_are_what_the_api_server_takes() -> None:
    operations = [{"op": "add", "path": "/spec/affinity", "value": {"é": 1}}]
    long = "line\nwith \x00 and\ttabs " + "x" * 1000
    response = json.loads(encode_response("u-1", operations, [long] * 20))["response"]
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == operations
    assert len(response["warnings"]) == 8
    assert all(len(warning) <= 240 and warning.isprintable() for warning in response["warnings"])
