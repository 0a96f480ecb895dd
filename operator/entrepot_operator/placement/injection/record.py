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

from entrepot_operator.placement.names import INJECTED

VERSION = 1
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
INHERITED_AFFINITY = "inherited-affinity"  # in ``created``: a copy of the affinity that the pod would have inherited


@dataclass
class InjectionDiff:
    """Additions of one injection to a pod.

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
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not (self.preferred or self.required or self.volumes or self.mounts or self.env)


def to_text(facts: Mapping[str, Any], diff: InjectionDiff) -> str:
    """The annotation's text.

    Args:
        facts: what was done and why, for display.
        diff: what remove_injection() removes again.
    """
    non_empty = {attribute.name: value for attribute in fields(diff) if (value := getattr(diff, attribute.name))}
    return json.dumps({"version": VERSION, **facts, "added": non_empty}, separators=(",", ":"))


def remove_injection(pod: dict[str, Any]) -> None:
    """Remove an earlier injection and its record from a pod; does nothing if there was none.

    Raises:
        InvalidArgument: the record is damaged.
        VersionMismatch: it was written by a newer version.
    """
    metadata = pod.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if INJECTED not in annotations:
        return
    diff = _parse_record(annotations[INJECTED])
    del annotations[INJECTED]
    spec = pod["spec"]
    _strip_affinity(spec, diff)
    for name, container in named_containers(spec):
        _remove_entries(container, "volumeMounts", "mountPath", diff.mounts.get(name, ()), f"mounts:{name}", diff)
        _remove_entries(container, "env", "name", diff.env.get(name, ()), f"env:{name}", diff)
    _remove_entries(spec, "volumes", "name", diff.volumes, "volumes", diff)
    if not annotations and "annotations" in diff.created:
        del metadata["annotations"]
    if not metadata and "metadata" in diff.created:
        del pod["metadata"]


def is_injected(pod: Mapping[str, Any]) -> bool:
    """Whether the pod was injected before."""
    return INJECTED in ((pod.get("metadata") or {}).get("annotations") or {})


def is_unchanged(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether injecting again gave the same result, except for the order of volumes, mounts, variables and preferred
    terms.

    The existing order is kept: others append after our entries, and variables may refer to preceding ones.
    """
    left, right = _preferred_terms(before), _preferred_terms(after)
    if left != right and _sorted_terms(left) != _sorted_terms(right):
        return False
    return bool(_comparable(before) == _comparable(after))


def _preferred_terms(pod: Mapping[str, Any]) -> list[Any]:
    return ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(PREFERRED) or []


def _sorted_terms(terms: list[Any]) -> list[str]:
    return sorted(json.dumps(term, sort_keys=True) for term in terms)


def _comparable(pod: Mapping[str, Any]) -> Any:
    metadata = {**(pod.get("metadata") or {})}
    annotations = {**(metadata.get("annotations") or {})}
    data = json.loads(annotations.pop(INJECTED, "{}"))
    added = data.get("added", {})
    # Others may have added to the lists created for our entries.
    added["created"] = [item for item in added.get("created", []) if item == INHERITED_AFFINITY]
    spec = {**pod["spec"], "volumes": _sorted_by(pod["spec"].get("volumes"), "name")}
    for kind in ("containers", "initContainers"):
        spec[kind] = [
            {
                **item,
                "env": _sorted_by(item.get("env"), "name"),
                "volumeMounts": _sorted_by(item.get("volumeMounts"), "mountPath"),
            }
            for item in spec.get(kind) or []
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


def _sorted_by(items: list[dict[str, Any]] | None, key: str) -> list[dict[str, Any]]:
    return sorted(items or [], key=lambda item: str(item.get(key)))


def created_entries(pod: Mapping[str, Any]) -> list[str]:
    """Return the entries that an earlier injection recorded as created; empty if there was none.

    Raises:
        As :func:`remove_injection`.
    """
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return _parse_record(annotations[INJECTED]).created if INJECTED in annotations else []


def named_containers(spec: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The containers of a pod, init containers last, with their names or, if unnamed, their indexes."""
    named: list[tuple[str, dict[str, Any]]] = []
    for kind in ("containers", "initContainers"):
        listed = spec.get(kind) or []
        named += [(container.get("name") or f"{kind}[{index}]", container) for index, container in enumerate(listed)]
    return named


def _strip_affinity(spec: dict[str, Any], diff: InjectionDiff) -> None:
    affinity = spec.get("affinity") or {}
    node = affinity.get("nodeAffinity") or {}
    preferred = node.get(PREFERRED) or []
    for term in diff.preferred:
        if term in preferred:
            preferred.remove(term)
    terms = (node.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    for index, expression in (
        (index, required_expression) for indexes, required_expression in diff.required for index in indexes
    ):
        expressions = terms[index].get("matchExpressions") or [] if index < len(terms) else []
        if expression in expressions:
            expressions.remove(expression)
            if not expressions:
                del terms[index]["matchExpressions"]
    if "required" in diff.created and not any(terms):
        node.pop(REQUIRED, None)
    for key, holder, entry_name in (
        (PREFERRED, node, "preferred"),
        ("nodeAffinity", affinity, "nodeAffinity"),
        ("affinity", spec, "affinity"),
    ):
        if entry_name in diff.created and not holder.get(key):
            holder.pop(key, None)


def _remove_entries(
    holder: dict[str, Any], key: str, key_field: str, names: Any, entry_name: str, diff: InjectionDiff
) -> None:
    entries = holder.get(key)
    if not entries:
        return
    remaining = [entry for entry in entries if entry.get(key_field) not in names]
    if remaining or entry_name not in diff.created:
        holder[key] = remaining
    else:
        del holder[key]


def _parse_record(value: Any) -> InjectionDiff:
    try:
        data = json.loads(value)
        version = data["version"]
        if isinstance(version, int) and version > VERSION:
            raise VersionMismatch(
                f"the annotation {INJECTED} has format version {version}, this installation reads up to {VERSION}: "
                "upgrade entrepot here"
            )
        raw = data["added"]
        diff = InjectionDiff(
            preferred=[dict(item) for item in raw.get("preferred", [])],
            required=[([int(index) for index in indexes], dict(item)) for indexes, item in raw.get("required", [])],
            volumes=[str(item) for item in raw.get("volumes", [])],
            mounts={str(name): [str(item) for item in paths] for name, paths in raw.get("mounts", {}).items()},
            env={str(name): [str(item) for item in names] for name, names in raw.get("env", {}).items()},
            created=[str(item) for item in raw.get("created", [])],
        )
        if any(index < 0 for indexes, _ in diff.required for index in indexes):
            raise ValueError("negative term index")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidArgument(
            f"the annotation {INJECTED} is damaged ({error}): remove it and everything the injection added"
        ) from None
    return diff
