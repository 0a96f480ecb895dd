"""Adds node affinity to a pod in addition to its user's, and a store's socket, memory and environment."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_operator.placement.injection.record import PREFERRED, REQUIRED, InjectionDiff, named_containers
from entrepot_operator.placement.names import (
    ADDRESS_VARIABLE,
    CONTAINERS,
    NODE_VARIABLE,
    SHARED_MEMORY_PATH,
    SHARED_MEMORY_VOLUME,
    SOCKET_VOLUME,
    ClusterConfig,
)
from entrepot_operator.placement.warnings import PlacementWarning


def required_terms(spec: dict[str, Any]) -> list[Any] | None:
    """The required node selector terms of a pod; None: it requires nothing."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    return None if required is None else required.get("nodeSelectorTerms") or []


def add_preferred_terms(spec: dict[str, Any], terms: Sequence[dict[str, Any]], diff: InjectionDiff) -> None:
    """Append preferred terms after the user's."""
    node_affinity = _node_affinity(spec, diff)
    preferred_terms = _get_or_create(node_affinity, PREFERRED, list, "preferred", diff)
    preferred_terms.extend(terms)
    diff.preferred.extend(terms)


def add_required_expression(spec: dict[str, Any], expression: dict[str, Any], diff: InjectionDiff) -> None:
    """Add an expression to every term, so that each of the user's alternatives is preserved, only narrowed.

    A term without any expression matches nothing; with ours it would match something, so it is left unchanged.
    """
    terms = required_terms(spec)
    if terms is None:
        node_affinity = _node_affinity(spec, diff)
        node_affinity[REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [copy.deepcopy(expression)]}]}
        diff.created.append("required")
        diff.required.append(([0], copy.deepcopy(expression)))
        return
    indexes: list[int] = []
    for index, term in enumerate(terms):
        if not term.get("matchExpressions") and not term.get("matchFields"):
            continue
        if expression in (term.get("matchExpressions") or []):
            continue
        term["matchExpressions"] = [*(term.get("matchExpressions") or []), copy.deepcopy(expression)]
        indexes.append(index)
    if indexes:
        diff.required.append((indexes, copy.deepcopy(expression)))


def add_mounts(
    spec: dict[str, Any],
    cluster_config: ClusterConfig,
    only: frozenset[str] | None,
    inherited_volumes: Collection[str],
    diff: InjectionDiff,
) -> list[PlacementWarning]:
    """Give containers the store's socket, shared memory and environment; the user's own entries are kept.

    Args:
        spec: of the pod.
        cluster_config: configuration of the stores.
        only: names of the containers to change; None: all.
        inherited_volumes: names of volumes that the pod gets from outside its own list.
        diff: records what was added.

    Raises:
        InvalidArgument: a named container does not exist.
    """
    selected_containers = named_containers(spec)
    if only is not None:
        missing = sorted(only - {name for name, _ in selected_containers})
        if missing:
            raise InvalidArgument(f"annotation {CONTAINERS} names {missing[0]!r}, but the pod has no such container")
        selected_containers = [(name, entry) for name, entry in selected_containers if name in only]
    # The directory is created if missing: a pod waiting for it would wait forever.
    volumes: list[tuple[str, str, dict[str, Any]]] = [
        (
            SOCKET_VOLUME,
            cluster_config.socket_folder,
            {"hostPath": {"path": cluster_config.socket_folder, "type": "DirectoryOrCreate"}},
        )
    ]
    if cluster_config.shared_memory is not None:
        limit = {"sizeLimit": cluster_config.shared_memory} if cluster_config.shared_memory else {}
        volumes.append((SHARED_MEMORY_VOLUME, SHARED_MEMORY_PATH, {"emptyDir": {"medium": "Memory", **limit}}))
    variables: list[dict[str, Any]] = [
        {"name": ADDRESS_VARIABLE, "value": cluster_config.address},
        {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
    ]
    warnings: list[PlacementWarning] = []
    used_volumes: set[str] = set()
    for name, container in selected_containers:
        taken_paths = {entry.get("mountPath") for entry in container.get("volumeMounts") or []}
        mounts = [
            {"name": volume, "mountPath": path, **({"readOnly": True} if volume == SOCKET_VOLUME else {})}
            for volume, path, _ in volumes
            if path not in taken_paths
        ]
        used_volumes |= {str(entry["name"]) for entry in mounts}
        _append_entries(container, "volumeMounts", mounts, f"mounts:{name}", diff)
        existing_variables = {entry.get("name") for entry in container.get("env") or []}
        new_variables = [dict(entry) for entry in variables if entry["name"] not in existing_variables]
        if new_variables:  # in front, so that the user's own variables may refer to them
            _get_or_create(container, "env", list, f"env:{name}", diff)[:0] = new_variables
        if mounts:
            diff.mounts[name] = [str(entry["mountPath"]) for entry in mounts]
        if new_variables:
            diff.env[name] = [str(entry["name"]) for entry in new_variables]
        if ADDRESS_VARIABLE in existing_variables:
            warnings.append(PlacementWarning("own-address", f"container {name} sets {ADDRESS_VARIABLE} itself"))
    existing_volumes = {entry.get("name") for entry in spec.get("volumes") or []} | set(inherited_volumes)
    warnings += [
        PlacementWarning("own-volume", f"the pod's own volume {entry} is used")
        for entry in sorted(used_volumes & existing_volumes)
    ]
    new_volumes = [{"name": name, **source} for name, _, source in volumes if name in used_volumes - existing_volumes]
    _append_entries(spec, "volumes", new_volumes, "volumes", diff)
    diff.volumes += [str(entry["name"]) for entry in new_volumes]
    return warnings


def _append_entries(
    holder: dict[str, Any], key: str, values: list[dict[str, Any]], entry_name: str, diff: InjectionDiff
) -> None:
    if values:
        _get_or_create(holder, key, list, entry_name, diff).extend(values)


def _node_affinity(spec: dict[str, Any], diff: InjectionDiff) -> dict[str, Any]:
    affinity = _get_or_create(spec, "affinity", dict, "affinity", diff)
    node_affinity: dict[str, Any] = _get_or_create(affinity, "nodeAffinity", dict, "nodeAffinity", diff)
    return node_affinity


def _get_or_create(holder: dict[str, Any], key: str, kind: type, entry_name: str, diff: InjectionDiff) -> Any:
    if holder.get(key) is None:
        holder[key] = kind()
        diff.created.append(entry_name)
    return holder[key]
