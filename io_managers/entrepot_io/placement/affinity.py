"""Adds node affinity to a pod in addition to its user's, and a store's socket, memory and environment."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_io.placement.names import (
    ADDRESS_VARIABLE,
    CONTAINERS,
    NODE_VARIABLE,
    SHARED_MEMORY_PATH,
    SHARED_MEMORY_VOLUME,
    SOCKET_VOLUME,
    Site,
)
from entrepot_io.placement.reasons import Reason
from entrepot_io.placement.record import PREFERRED, REQUIRED, Added, containers


def required_terms(spec: dict[str, Any]) -> list[Any] | None:
    """The required node selector terms of a pod; None: it requires nothing."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    return None if required is None else required.get("nodeSelectorTerms") or []


def prefer(spec: dict[str, Any], terms: Sequence[dict[str, Any]], added: Added) -> None:
    """Append preferred terms after the user's."""
    node = _node_affinity(spec, added)
    listed = _made(node, PREFERRED, list, "preferred", added)
    listed.extend(terms)
    added.preferred.extend(terms)


def require(spec: dict[str, Any], expression: dict[str, Any], added: Added) -> None:
    """Add an expression to every term, so that each of the user's alternatives is preserved, only narrowed.

    A term without any expression matches nothing; with ours it would match something, so it is left unchanged.
    """
    terms = required_terms(spec)
    if terms is None:
        node = _node_affinity(spec, added)
        node[REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [copy.deepcopy(expression)]}]}
        added.created.append("required")
        added.required.append(([0], copy.deepcopy(expression)))
        return
    places: list[int] = []
    for place, term in enumerate(terms):
        if not term.get("matchExpressions") and not term.get("matchFields"):
            continue
        if expression in (term.get("matchExpressions") or []):
            continue
        term["matchExpressions"] = [*(term.get("matchExpressions") or []), copy.deepcopy(expression)]
        places.append(place)
    if places:
        added.required.append((places, copy.deepcopy(expression)))


def mount(
    spec: dict[str, Any], site: Site, only: frozenset[str] | None, elsewhere: Collection[str], added: Added
) -> list[Reason]:
    """Give containers the store's socket, shared memory and environment; the user's own entries are kept.

    Args:
        spec: of the pod.
        site: configuration of the stores.
        only: names of the containers to change; None: all.
        elsewhere: names of volumes that the pod gets from outside its own list.
        added: records what was added.

    Raises:
        InvalidArgument: a named container does not exist.
    """
    named = containers(spec)
    if only is not None:
        missing = sorted(only - {name for name, _ in named})
        if missing:
            raise InvalidArgument(f"annotation {CONTAINERS} names {missing[0]!r}, but the pod has no such container")
        named = [(name, one) for name, one in named if name in only]
    # The directory is created if missing: a pod waiting for it would wait forever.
    volumes: list[tuple[str, str, dict[str, Any]]] = [
        (SOCKET_VOLUME, site.socket_folder, {"hostPath": {"path": site.socket_folder, "type": "DirectoryOrCreate"}})
    ]
    if site.shared_memory is not None:
        limit = {"sizeLimit": site.shared_memory} if site.shared_memory else {}
        volumes.append((SHARED_MEMORY_VOLUME, SHARED_MEMORY_PATH, {"emptyDir": {"medium": "Memory", **limit}}))
    variables: list[dict[str, Any]] = [
        {"name": ADDRESS_VARIABLE, "value": site.address},
        {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
    ]
    reasons: list[Reason] = []
    used: set[str] = set()
    for name, container in named:
        taken = {one.get("mountPath") for one in container.get("volumeMounts") or []}
        mounts = [
            {"name": volume, "mountPath": path, **({"readOnly": True} if volume == SOCKET_VOLUME else {})}
            for volume, path, _ in volumes
            if path not in taken
        ]
        used |= {str(one["name"]) for one in mounts}
        _append(container, "volumeMounts", mounts, f"mounts:{name}", added)
        known = {one.get("name") for one in container.get("env") or []}
        fresh = [dict(one) for one in variables if one["name"] not in known]
        if fresh:  # in front, so that the user's own variables may refer to them
            _made(container, "env", list, f"env:{name}", added)[:0] = fresh
        if mounts:
            added.mounts[name] = [str(one["mountPath"]) for one in mounts]
        if fresh:
            added.env[name] = [str(one["name"]) for one in fresh]
        if ADDRESS_VARIABLE in known:
            reasons.append(Reason("own-address", f"container {name} sets {ADDRESS_VARIABLE} itself"))
    own = {one.get("name") for one in spec.get("volumes") or []} | set(elsewhere)
    reasons += [Reason("own-volume", f"the pod's own volume {one} is used") for one in sorted(used & own)]
    fresh_volumes = [{"name": name, **source} for name, _, source in volumes if name in used - own]
    _append(spec, "volumes", fresh_volumes, "volumes", added)
    added.volumes += [str(one["name"]) for one in fresh_volumes]
    return reasons


def _append(holder: dict[str, Any], key: str, values: list[dict[str, Any]], made: str, added: Added) -> None:
    if values:
        _made(holder, key, list, made, added).extend(values)


def _node_affinity(spec: dict[str, Any], added: Added) -> dict[str, Any]:
    affinity = _made(spec, "affinity", dict, "affinity", added)
    found: dict[str, Any] = _made(affinity, "nodeAffinity", dict, "nodeAffinity", added)
    return found


def _made(holder: dict[str, Any], key: str, kind: type, made: str, added: Added) -> Any:
    if holder.get(key) is None:
        holder[key] = kind()
        added.created.append(made)
    return holder[key]
