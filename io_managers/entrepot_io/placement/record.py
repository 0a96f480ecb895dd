"""The annotation that an injection leaves behind: what was done, why, and exactly what was added.

The last part makes injection idempotent: injecting again, possibly with other locations, first removes what the record
lists, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from entrepot.errors import InvalidArgument, VersionMismatch

from entrepot_io.placement.names import INJECTED

VERSION = 1
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
INHERITED = "inherited-affinity"  # in ``created``: a copy of the affinity that the pod would have inherited


@dataclass
class Added:
    """What one injection added to a pod.

    Attributes:
        preferred: preferred scheduling terms.
        required: required expressions, each with the indexes of the terms that it was added to.
        volumes: names of volumes.
        mounts: mount paths by container.
        env: names of variables by container.
        created: lists and mappings that did not exist before.
    """

    preferred: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    required: list[tuple[list[int], dict[str, Any]]] = field(default_factory=list[tuple[list[int], dict[str, Any]]])
    volumes: list[str] = field(default_factory=list[str])
    mounts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    env: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    created: list[str] = field(default_factory=list[str])

    @property
    def nothing(self) -> bool:
        """Whether nothing was added."""
        return not (self.preferred or self.required or self.volumes or self.mounts or self.env)


def text(facts: Mapping[str, Any], added: Added) -> str:
    """The annotation's text.

    Args:
        facts: what was done and why, for display.
        added: what strip() removes again.
    """
    kept = {one.name: value for one in fields(added) if (value := getattr(added, one.name))}
    return json.dumps({"version": VERSION, **facts, "added": kept}, separators=(",", ":"))


def strip(pod: dict[str, Any]) -> None:
    """Remove an earlier injection and its record from a pod; does nothing if there was none.

    Raises:
        InvalidArgument: the record is damaged.
        VersionMismatch: it was written by a newer version.
    """
    metadata = pod.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if INJECTED not in annotations:
        return
    added = _read(annotations[INJECTED])
    del annotations[INJECTED]
    spec = pod["spec"]
    _strip_affinity(spec, added)
    for name, container in containers(spec):
        _drop(container, "volumeMounts", "mountPath", added.mounts.get(name, ()), f"mounts:{name}", added)
        _drop(container, "env", "name", added.env.get(name, ()), f"env:{name}", added)
    _drop(spec, "volumes", "name", added.volumes, "volumes", added)
    if not annotations and "annotations" in added.created:
        del metadata["annotations"]
    if not metadata and "metadata" in added.created:
        del pod["metadata"]


def is_in(pod: Mapping[str, Any]) -> bool:
    """Whether the pod was injected before."""
    return INJECTED in ((pod.get("metadata") or {}).get("annotations") or {})


def unchanged(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether injecting again gave the same result, except for the order of volumes, mounts, variables and preferred
    terms.

    The existing order is kept: others append after our entries, and variables may refer to preceding ones.
    """
    left, right = _preferred(before), _preferred(after)
    if left != right and _sorted(left) != _sorted(right):
        return False
    return bool(_comparable(before) == _comparable(after))


def _preferred(pod: Mapping[str, Any]) -> list[Any]:
    return ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(PREFERRED) or []


def _sorted(terms: list[Any]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in terms)


def _comparable(pod: Mapping[str, Any]) -> Any:
    metadata = {**(pod.get("metadata") or {})}
    annotations = {**(metadata.get("annotations") or {})}
    data = json.loads(annotations.pop(INJECTED, "{}"))
    added = data.get("added", {})
    # Others may have added to the lists created for our entries.
    added["created"] = [one for one in added.get("created", []) if one == INHERITED]
    spec = {**pod["spec"], "volumes": _by_name(pod["spec"].get("volumes"), "name")}
    for kind in ("containers", "initContainers"):
        spec[kind] = [
            {
                **one,
                "env": _by_name(one.get("env"), "name"),
                "volumeMounts": _by_name(one.get("volumeMounts"), "mountPath"),
            }
            for one in spec.get(kind) or []
        ]
    affinity = {**(spec.get("affinity") or {})}
    node = {**(affinity.get("nodeAffinity") or {})}
    node.pop(PREFERRED, None)
    rest = {key: value for key, value in pod.items() if key not in ("metadata", "spec")}
    return (
        rest,
        {**metadata, "annotations": annotations},
        data,
        {**spec, "affinity": {**affinity, "nodeAffinity": node}},
    )


def _by_name(listed: list[dict[str, Any]] | None, key: str) -> list[dict[str, Any]]:
    return sorted(listed or [], key=lambda one: str(one.get(key)))


def created(pod: Mapping[str, Any]) -> list[str]:
    """What an earlier injection recorded as created; empty if there was none.

    Raises:
        As :func:`strip`.
    """
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return _read(annotations[INJECTED]).created if INJECTED in annotations else []


def containers(spec: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The containers of a pod, init containers last, with their names or, if unnamed, their indexes."""
    found: list[tuple[str, dict[str, Any]]] = []
    for kind in ("containers", "initContainers"):
        listed = spec.get(kind) or []
        found += [(one.get("name") or f"{kind}[{place}]", one) for place, one in enumerate(listed)]
    return found


def _strip_affinity(spec: dict[str, Any], added: Added) -> None:
    affinity = spec.get("affinity") or {}
    node = affinity.get("nodeAffinity") or {}
    preferred = node.get(PREFERRED) or []
    for term in added.preferred:
        if term in preferred:
            preferred.remove(term)
    terms = (node.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    for place, expression in ((place, one) for places, one in added.required for place in places):
        expressions = terms[place].get("matchExpressions") or [] if place < len(terms) else []
        if expression in expressions:
            expressions.remove(expression)
            if not expressions:
                del terms[place]["matchExpressions"]
    if "required" in added.created and not any(terms):
        node.pop(REQUIRED, None)
    for key, holder, made in (
        (PREFERRED, node, "preferred"),
        ("nodeAffinity", affinity, "nodeAffinity"),
        ("affinity", spec, "affinity"),
    ):
        if made in added.created and not holder.get(key):
            holder.pop(key, None)


def _drop(holder: dict[str, Any], key: str, by: str, names: Any, made: str, added: Added) -> None:
    listed = holder.get(key)
    if not listed:
        return
    left = [one for one in listed if one.get(by) not in names]
    if left or made not in added.created:
        holder[key] = left
    else:
        del holder[key]


def _read(value: Any) -> Added:
    try:
        data = json.loads(value)
        version = data["version"]
        if isinstance(version, int) and version > VERSION:
            raise VersionMismatch(
                f"the annotation {INJECTED} has format version {version}, this installation reads up to {VERSION}: "
                "upgrade entrepot here"
            )
        raw = data["added"]
        added = Added(
            preferred=[dict(one) for one in raw.get("preferred", [])],
            required=[([int(place) for place in places], dict(one)) for places, one in raw.get("required", [])],
            volumes=[str(one) for one in raw.get("volumes", [])],
            mounts={str(name): [str(one) for one in paths] for name, paths in raw.get("mounts", {}).items()},
            env={str(name): [str(one) for one in names] for name, names in raw.get("env", {}).items()},
            created=[str(one) for one in raw.get("created", [])],
        )
        if any(place < 0 for places, _ in added.required for place in places):
            raise ValueError("a term before the first")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidArgument(
            f"the annotation {INJECTED} is damaged ({error}): remove it, and what the injection had added"
        ) from None
    return added
