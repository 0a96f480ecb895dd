"""Validates a pod's structure, as far as an injection depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_operator.placement.injection.record import PREFERRED, REQUIRED

_EXPRESSION_SHAPE = {"key": str, "operator": str, "values": [str]}
_TERM_SHAPE = {"matchExpressions": [_EXPRESSION_SHAPE], "matchFields": [_EXPRESSION_SHAPE]}
CONTAINER_SHAPE = {"name": str, "env": [{"name": str}], "volumeMounts": [{"mountPath": str}]}
AFFINITY_SHAPE: dict[str, Any] = {"nodeAffinity": {PREFERRED: [{}], REQUIRED: {"nodeSelectorTerms": [_TERM_SHAPE]}}}
_POD_SHAPE: dict[str, Any] = {
    "metadata": {"annotations": {}, "labels": {}},
    "spec": {
        "affinity": AFFINITY_SHAPE,
        "nodeSelector": {},
        "tolerations": [{}],
        "os": {},
        "volumes": [{"name": str}],
        "containers": [CONTAINER_SHAPE],
        "initContainers": [CONTAINER_SHAPE],
    },
}
_TYPE_NAMES: dict[Any, str] = {dict: "a mapping", list: "a list", str: "a string"}
_MAX_SHOWN = 60


def validate_pod(pod: Mapping[str, Any]) -> None:
    """Check a pod.

    Raises:
        InvalidArgument: it is not a valid pod; the message names the path and the value found.
    """
    kind = pod.get("kind")
    if kind not in (None, "Pod", "PodTemplate"):
        raise InvalidArgument(f"inject accepts a pod, but this is a {kind}: use inject_document for it")
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        raise InvalidArgument(f"a pod's spec must be a mapping, but got {_shorten(spec)}")
    if "template" in spec and "containers" not in spec:
        raise InvalidArgument("inject accepts a pod, but this contains a pod template: use inject_document for it")
    snake_case_keys = sorted(key for key in spec if isinstance(key, str) and "_" in key)
    if snake_case_keys:
        raise InvalidArgument(
            f"spec.{snake_case_keys[0]} is not a field of a pod: a dictionary must use Kubernetes' JSON names, not "
            "those of the Python client's to_dict(); pass the client's object itself, or the result of "
            "sanitize_for_serialization"
        )
    validate_shape(pod, _POD_SHAPE, "")


def validate_shape(value: Any, shape: Any, path: str) -> None:
    """Check a value against a shape; null counts as absent.

    Args:
        value: to check.
        shape: a dictionary for a mapping with these keys, all of them optional; a list for a list of such items; a
            type.
        path: of the value, for messages.

    Raises:
        InvalidArgument: it has another shape; the message names the path.
    """
    expected_type: Any = shape if isinstance(shape, type) else type(shape)
    if not isinstance(value, expected_type):
        raise InvalidArgument(f"{path} must be {_TYPE_NAMES[expected_type]}, but got {_shorten(value)}")
    if isinstance(shape, dict):
        for key, inner_shape in shape.items():
            if value.get(key) is not None:
                validate_shape(value[key], inner_shape, f"{path}.{key}" if path else key)
    elif isinstance(shape, list):
        for index, item in enumerate(value):
            validate_shape(item, shape[0], f"{path}[{index}]")


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
