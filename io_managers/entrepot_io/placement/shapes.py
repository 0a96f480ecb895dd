"""Validates a pod's structure, as far as an injection depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_io.placement.record import PREFERRED, REQUIRED

_EXPRESSION = {"key": str, "operator": str, "values": [str]}
_TERM = {"matchExpressions": [_EXPRESSION], "matchFields": [_EXPRESSION]}
CONTAINER = {"name": str, "env": [{"name": str}], "volumeMounts": [{"mountPath": str}]}
AFFINITY: dict[str, Any] = {"nodeAffinity": {PREFERRED: [{}], REQUIRED: {"nodeSelectorTerms": [_TERM]}}}
_POD: dict[str, Any] = {
    "metadata": {"annotations": {}, "labels": {}},
    "spec": {
        "affinity": AFFINITY,
        "nodeSelector": {},
        "tolerations": [{}],
        "os": {},
        "volumes": [{"name": str}],
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
    },
}
_KINDS: dict[Any, str] = {dict: "a mapping", list: "a list", str: "a text"}
_SHOWN = 60


def check(pod: Mapping[str, Any]) -> None:
    """Check a pod.

    Raises:
        InvalidArgument: it is not a valid pod; the message names the path and the value found.
    """
    kind = pod.get("kind")
    if kind not in (None, "Pod", "PodTemplate"):
        raise InvalidArgument(f"inject takes a pod, but this is a {kind}: inject_document finds the pods in it")
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        raise InvalidArgument(f"a pod has a spec, which is a mapping, but here it is {_shown(spec)}")
    if "template" in spec and "containers" not in spec:
        raise InvalidArgument("inject takes a pod, but this has a pod template in it: inject_document finds it there")
    snake = sorted(key for key in spec if isinstance(key, str) and "_" in key)
    if snake:
        raise InvalidArgument(
            f"spec.{snake[0]} is no field of a pod: a dictionary has the names of Kubernetes' JSON, not those of the "
            "Python client's to_dict(); give the client's object itself, or what sanitize_for_serialization makes of it"
        )
    walk(pod, _POD, "")


def walk(value: Any, shape: Any, path: str) -> None:
    """Check a value against a shape; null counts as absent.

    Args:
        value: to check.
        shape: a dictionary for a mapping with these keys, all of them optional; a list for a list of such items; a
            type.
        path: of the value, for messages.

    Raises:
        InvalidArgument: it has another shape; the message names the path.
    """
    wanted: Any = shape if isinstance(shape, type) else type(shape)
    if not isinstance(value, wanted):
        raise InvalidArgument(f"{path} is {_KINDS[wanted]}, but got {_shown(value)}")
    if isinstance(shape, dict):
        for key, inner in shape.items():
            if value.get(key) is not None:
                walk(value[key], inner, f"{path}.{key}" if path else key)
    elif isinstance(shape, list):
        for place, one in enumerate(value):
            walk(one, shape[0], f"{path}[{place}]")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
