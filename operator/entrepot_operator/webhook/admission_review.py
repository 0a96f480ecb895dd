"""AdmissionReview of ``admission.k8s.io/v1``: requests are validated, and responses never reject a pod."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_operator.webhook.json_patch import Operation

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
MAX_BODY_BYTES = 4 << 20  # the API server itself accepts requests of 3 MiB
_MAX_UID = 128
# Each warning becomes an HTTP header, shown by kubectl. The API server truncates if their total is too long.
_MAX_WARNING = 240
_MAX_WARNINGS = 8


@dataclass(frozen=True)
class Review:
    """One pod about to be created.

    Attributes:
        uid: of the request; the response repeats it.
        namespace: of the pod.
        pod: as it would be stored.
        dry_run: whether this request must have no side effects.
    """

    uid: str
    namespace: str
    pod: dict[str, Any]
    dry_run: bool


def parse_review(body: bytes) -> Review:
    """Parse a request.

    Args:
        body: of the HTTP request; its size was checked.

    Raises:
        InvalidArgument: it is not an AdmissionReview v1 of a pod's creation.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the body is not JSON: {type(error).__name__}: {str(error)[:200]}") from None
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("apiVersion") != API_VERSION:
        description = (
            f"{data.get('kind')!r} of {data.get('apiVersion')!r}" if isinstance(data, dict) else type(data).__name__
        )
        raise InvalidArgument(f"the body must be {KIND} of {API_VERSION}, not {description:.200}")
    request = data.get("request")
    if not isinstance(request, dict):
        raise InvalidArgument("the review has no request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid or len(uid) > _MAX_UID:
        raise InvalidArgument("the request has no valid uid")
    kind, operation = request.get("kind"), request.get("operation")
    kind_fields = kind if isinstance(kind, dict) else {}
    if (kind_fields.get("group"), kind_fields.get("version"), kind_fields.get("kind")) != (
        "",
        "v1",
        "Pod",
    ) or operation != "CREATE":
        raise InvalidArgument(f"this webhook handles only the creation of pods, not {operation} of {kind}"[:300])
    pod = request.get("object")
    if not isinstance(pod, dict) or not isinstance(pod.get("metadata"), dict) or not isinstance(pod.get("spec"), dict):
        raise InvalidArgument("the request has no pod with metadata and spec")
    return Review(uid, str(request.get("namespace") or ""), pod, request.get("dryRun") is True)


def encode_response(uid: str, patch: Iterable[Operation] = (), warnings: Iterable[str] = ()) -> bytes:
    """A response that admits the pod.

    Args:
        uid: of the request.
        patch: operations on the pod.
        warnings: for the creator of the pod.
    """
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    operations = list(patch)
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(operations, separators=(",", ":")).encode()).decode()
    warning_lines = [_warning_line(warning) for warning in warnings][:_MAX_WARNINGS]
    if warning_lines:
        response["warnings"] = warning_lines
    review: Mapping[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "response": response}
    return json.dumps(review, separators=(",", ":")).encode()


def _warning_line(text: str) -> str:
    """Text on one line, truncated to the length limit of a warning."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _MAX_WARNING else line[: _MAX_WARNING - 3] + "..."
