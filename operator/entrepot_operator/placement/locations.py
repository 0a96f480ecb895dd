"""Sources of locations: a file, this node's store, or both.

Each source is a mapping ``{ID: {node: bytes}}``, the only interface that ``inject`` needs.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument, ObjectNotFound, VersionMismatch
from entrepot.ids import ObjectID

from entrepot_operator.placement.formats import manifests
from entrepot_operator.placement.names import NODE_VARIABLE
from entrepot_operator.placement.nodes import Node

if TYPE_CHECKING:
    from entrepot import Store

FORMAT_VERSION = 1
_SIZE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTPE]i?)?B?")
_UNITS = {unit: 1000 ** (place + 1) for place, unit in enumerate("KMGTPE")}
_UNITS |= {f"{unit}i": 1024 ** (place + 1) for place, unit in enumerate("KMGTPE")}


@dataclass
class Locations:
    """The content of a locations file.

    Attributes:
        objects: bytes by object and node.
        nodes: the cluster's nodes; None: not given.
    """

    objects: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    nodes: dict[str, Node] | None = None


def parse_locations(text: str, name: str) -> Locations:
    """Parse a locations file, YAML or JSON.

    Either ``{ID: {node: bytes}}`` alone, or that under ``objects`` beside ``nodes: {NAME: {labels, taints,
    unschedulable}}`` and ``version: 1``. Bytes are numbers, or strings such as ``1.5Gi``.

    Args:
        text: the file's content.
        name: of the file, for messages.

    Raises:
        InvalidArgument: the content is invalid; the message gives the position.
        VersionMismatch: it was written by a newer version.
    """
    contents = [part.content for part in manifests.parse(text, name).parts if part.content is not None]
    if len(contents) != 1 or not isinstance(contents[0], dict):
        raise InvalidArgument(f"{name}: locations must be a single mapping {{ID: {{node: bytes}}}}")
    content = contents[0]
    if "objects" not in content and "nodes" not in content and "version" not in content:
        content = {"objects": content}
    version = content.get("version", FORMAT_VERSION)
    if not isinstance(version, int) or version < 1:
        raise InvalidArgument(f"{name}: the version must be a positive integer, not {version!r}")
    if version > FORMAT_VERSION:
        raise VersionMismatch(
            f"{name} has format version {version}, this installation reads up to {FORMAT_VERSION}: "
            "upgrade entrepot here"
        )
    unknown = sorted(set(content) - {"version", "objects", "nodes"})
    if unknown:
        raise InvalidArgument(f"{name}: unknown key {unknown[0]!r}; supported are version, objects, nodes")
    objects: dict[str, dict[str, int]] = {}
    for key, by_node in _check_mapping(content.get("objects") or {}, f"{name}: objects").items():
        try:
            oid = str(ObjectID(key))
        except InvalidArgument as error:
            raise InvalidArgument(f"{name}: {error}") from None
        where = f"{name}: the locations of {key}"
        objects[oid] = {
            node: _parse_byte_count(count, f"{where} on {node}")
            for node, count in _check_mapping(by_node or {}, where).items()
        }
    nodes = None
    if content.get("nodes") is not None:
        node_mappings = _check_mapping(content["nodes"], f"{name}: nodes")
        nodes = {node: _parse_node(attributes, f"{name}: node {node}") for node, attributes in node_mappings.items()}
    return Locations(objects, nodes)


class StoreLocations(Mapping[str, Mapping[str, int]]):
    """Locations in one node's store; the store is queried once for each object, on first lookup.

    Args:
        store: connected.
        node: the name of its node; default: ENTREPOT_NODE, or this host's name.
    """

    def __init__(self, store: Store, node: str | None = None) -> None:
        self._store = store
        self._node = node or node_name()
        self._cache: dict[str, dict[str, int] | None] = {}

    def __getitem__(self, key: Any) -> Mapping[str, int]:
        oid = str(key)
        if oid not in self._cache:
            try:
                info = self._store.info(ObjectID(oid))
            except ObjectNotFound:
                self._cache[oid] = None
            else:
                count = info.collection["nbytes"] if info.collection is not None else info.nbytes
                self._cache[oid] = {self._node: int(count)}
        cached = self._cache[oid]
        if cached is None:
            raise KeyError(key)
        return cached

    def __iter__(self) -> Iterator[str]:
        return iter([str(entry.id) for entry in self._store.list()])

    def __len__(self) -> int:
        return len(self._store.list())


class MergedLocations(Mapping[str, Mapping[str, int]]):
    """Merges sources; for duplicate nodes the larger byte count wins.

    Args:
        sources: the sources.
    """

    def __init__(self, *sources: Mapping[Any, Mapping[str, int]]) -> None:
        self._sources = sources

    def __getitem__(self, key: Any) -> Mapping[str, int]:
        matches = [by_node for source in self._sources if (by_node := source.get(key)) is not None]
        if not matches:
            raise KeyError(key)
        merged: dict[str, int] = {}
        for by_node in matches:
            for node, count in by_node.items():
                merged[node] = max(count, merged.get(node, 0))
        return merged

    def __iter__(self) -> Iterator[str]:
        return iter({key: None for source in self._sources for key in source})

    def __len__(self) -> int:
        return len(list(iter(self)))


def node_name() -> str:
    """The name of this node: ENTREPOT_NODE, which an injected pod has, else the host's name."""
    return os.environ.get(NODE_VARIABLE) or socket.gethostname()


def _parse_node(attributes: Any, where: str) -> Node:
    attributes = _check_mapping(attributes or {}, where)
    unknown = sorted(set(attributes) - {"labels", "taints", "unschedulable"})
    if unknown:
        raise InvalidArgument(f"{where}: unknown key {unknown[0]!r}; supported are labels, taints, unschedulable")
    labels = _check_mapping(attributes.get("labels") or {}, f"{where}: labels")
    for label, value in labels.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"{where}: label {label} must be a string, but got {value!r}: put it in quotes")
    taints = attributes.get("taints") or []
    if not isinstance(taints, list) or not all(isinstance(taint, dict) for taint in taints):
        raise InvalidArgument(f"{where}: taints must be a list of mappings, but got {taints!r}")
    unschedulable = attributes.get("unschedulable", False)
    if not isinstance(unschedulable, bool):
        raise InvalidArgument(f"{where}: unschedulable must be true or false, not {unschedulable!r}")
    return Node(labels, taints, unschedulable)


def _parse_byte_count(value: Any, where: str) -> int:
    if isinstance(value, str) and (match := _SIZE_PATTERN.fullmatch(value.strip())):
        return int(float(match.group(1)) * _UNITS[match.group(2)]) if match.group(2) else int(float(match.group(1)))
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise InvalidArgument(f"{where} must be a number of bytes or a string such as 1.5Gi, not {value!r}")


def _check_mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument(f"{where} must be a mapping, but got {type(value).__name__} {value!r}")
    return value
