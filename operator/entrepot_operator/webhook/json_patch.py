"""An injection's changes to a pod as a JSON patch (RFC 6902), restricted to the fields it may touch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from entrepot_operator.placement.names import INJECTED

Operation = dict[str, Any]

_SPEC_FIELDS = ("affinity", "volumes")
_CONTAINER_LISTS = ("containers", "initContainers")
_CONTAINER_FIELDS = ("env", "volumeMounts")


class UnexpectedChange(Exception):
    """Something was changed that the webhook must not touch: a bug in this program."""


def create_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Operation]:
    """The operations that turn one pod into the other; none if they are equal.

    They affect only ``spec.affinity``, ``spec.volumes``, ``env`` and ``volumeMounts`` of containers, and the annotation
    ``entrepot.dev/injected``.

    Args:
        before: the original pod.
        after: the changed pod.

    Raises:
        UnexpectedChange: they differ anywhere else; the message names the path.
    """
    _require_equal(before, after, ("metadata", "spec"), "")
    operations = [*_annotation_patch(before.get("metadata"), after.get("metadata"))]
    old, new = before["spec"], after["spec"]
    _require_equal(old, new, (*_SPEC_FIELDS, *_CONTAINER_LISTS), "/spec")
    for key in _SPEC_FIELDS:
        operations += _field_patch(old, new, key, "/spec")
    for key in _CONTAINER_LISTS:
        operations += _containers_patch(old.get(key), new.get(key), f"/spec/{key}")
    return operations


def _annotation_patch(old: Any, new: Any) -> Iterator[Operation]:
    old, new = old or {}, new or {}
    _require_equal(old, new, ("annotations",), "/metadata")
    before, after = old.get("annotations"), new.get("annotations")
    _require_equal(before or {}, after or {}, (INJECTED,), "/metadata/annotations")
    if not before:
        # There is no mapping to add to: adding a whole one overwrites nothing.
        if after:
            yield {"op": "add", "path": "/metadata/annotations", "value": after}
    else:
        yield from _field_patch(before, after or {}, INJECTED, "/metadata/annotations")


def _containers_patch(old: Any, new: Any, path: str) -> Iterator[Operation]:
    if len(old or []) != len(new or []):
        raise UnexpectedChange(f"{path} has {len(new or [])} entries instead of {len(old or [])}")
    for index, (before, after) in enumerate(zip(old or [], new or [], strict=True)):
        container_path = f"{path}/{index}"
        _require_equal(before, after, _CONTAINER_FIELDS, container_path)
        for key in _CONTAINER_FIELDS:
            yield from _field_patch(before, after, key, container_path)


def _field_patch(old: Mapping[str, Any], new: Mapping[str, Any], key: str, path: str) -> Iterator[Operation]:
    field_path = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
    if key not in new:
        if key in old:
            yield {"op": "remove", "path": field_path}
    elif key not in old:
        yield {"op": "add", "path": field_path, "value": new[key]}
    elif old[key] != new[key]:
        yield {"op": "replace", "path": field_path, "value": new[key]}


def _require_equal(old: Mapping[str, Any], new: Mapping[str, Any], ignored: tuple[str, ...], path: str) -> None:
    for key in old.keys() | new.keys():
        if key not in ignored and (key not in old or key not in new or old[key] != new[key]):
            raise UnexpectedChange(f"{path}/{key} differs")
