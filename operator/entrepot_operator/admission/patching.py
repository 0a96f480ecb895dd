"""An injection's changes to a pod as a JSON patch (RFC 6902), restricted to the fields it may touch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from entrepot_io.placement.names import INJECTED

Operation = dict[str, Any]

_SPEC = ("affinity", "volumes")
_LISTS = ("containers", "initContainers")
_CONTAINER = ("env", "volumeMounts")


class ForeignChange(Exception):
    """Something was changed that the webhook must not touch: a bug in this program."""


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Operation]:
    """The operations that turn one pod into the other; none if they are equal.

    They affect only ``spec.affinity``, ``spec.volumes``, ``env`` and ``volumeMounts`` of containers, and the annotation
    ``entrepot.dev/injected``.

    Args:
        before: the original pod.
        after: the changed pod.

    Raises:
        ForeignChange: they differ anywhere else; the message names the path.
    """
    _same(before, after, ("metadata", "spec"), "")
    made = [*_annotation(before.get("metadata"), after.get("metadata"))]
    old, new = before["spec"], after["spec"]
    _same(old, new, (*_SPEC, *_LISTS), "/spec")
    for key in _SPEC:
        made += _field(old, new, key, "/spec")
    for key in _LISTS:
        made += _containers(old.get(key), new.get(key), f"/spec/{key}")
    return made


def _annotation(old: Any, new: Any) -> Iterator[Operation]:
    old, new = old or {}, new or {}
    _same(old, new, ("annotations",), "/metadata")
    before, after = old.get("annotations"), new.get("annotations")
    _same(before or {}, after or {}, (INJECTED,), "/metadata/annotations")
    if not before:
        # There is no mapping to add to: adding a whole one overwrites nothing.
        if after:
            yield {"op": "add", "path": "/metadata/annotations", "value": after}
    else:
        yield from _field(before, after or {}, INJECTED, "/metadata/annotations")


def _containers(old: Any, new: Any, path: str) -> Iterator[Operation]:
    if len(old or []) != len(new or []):
        raise ForeignChange(f"{path} has {len(new or [])} entries instead of {len(old or [])}")
    for place, (before, after) in enumerate(zip(old or [], new or [], strict=True)):
        where = f"{path}/{place}"
        _same(before, after, _CONTAINER, where)
        for key in _CONTAINER:
            yield from _field(before, after, key, where)


def _field(old: Mapping[str, Any], new: Mapping[str, Any], key: str, path: str) -> Iterator[Operation]:
    where = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
    if key not in new:
        if key in old:
            yield {"op": "remove", "path": where}
    elif key not in old:
        yield {"op": "add", "path": where, "value": new[key]}
    elif old[key] != new[key]:
        yield {"op": "replace", "path": where, "value": new[key]}


def _same(old: Mapping[str, Any], new: Mapping[str, Any], but: tuple[str, ...], path: str) -> None:
    for key in old.keys() | new.keys():
        if key not in but and (key not in old or key not in new or old[key] != new[key]):
            raise ForeignChange(f"{path}/{key} differs")
