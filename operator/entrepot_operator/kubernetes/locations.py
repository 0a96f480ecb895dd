"""Locations of objects according to the cluster's API: LocalObjects with a valid lease, and the cluster's nodes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from entrepot.errors import AccessDenied, InvalidArgument, ObjectNotFound, VersionMismatch
from entrepot.ids import ObjectID
from entrepot.phrases import session_phrase

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.errors import ResourceNotFound
from entrepot_operator.kubernetes.objects import (
    MANAGED_BY,
    MANAGER,
    VERSION,
    GlobalObject,
    LocalObject,
    StoreLease,
    lease_path,
    resource_path,
)
from entrepot_operator.placement.locations import Locations
from entrepot_operator.placement.names import GROUP
from entrepot_operator.placement.nodes import Node

INSTALL_COMMAND = "entrepot crds | kubectl apply --server-side -f -"
# Former names of attributes of ClusterLocations: deprecated, for one version.
_FORMER_NAMES = {"expired": "expired_nodes", "locals": "local_objects", "named": "find_by_name"}


@dataclass
class ClusterLocations(Locations):
    """Locations of objects as reported by the API.

    Attributes:
        objects: bytes by object and node. A known object that no live store holds has no nodes.
        nodes: the cluster's nodes; None: the credentials do not allow listing them.
        local_objects: the LocalObjects that count.
        collections: the GlobalObjects, by ID.
        expired_nodes: nodes whose store's lease has expired, and which are ignored.
    """

    local_objects: list[LocalObject] = field(default_factory=list[LocalObject])
    collections: dict[str, GlobalObject] = field(default_factory=dict[str, GlobalObject])
    expired_nodes: list[str] = field(default_factory=list[str])

    def members(self, oid: ObjectID) -> list[ObjectID] | None:
        """The members of a collection; None: no collection with this ID is known.

        Raises:
            InvalidArgument: it has too many members for the API to list.
        """
        collection = self.collections.get(str(oid))
        if collection is None:
            return None
        if collection.members is None:
            raise InvalidArgument(
                f"the collection {oid} has {collection.member_count} members, more than the cluster's API lists: "
                "query the store (--from-store)"
            )
        return list(collection.members)

    def find_by_name(self, name: str, *, scope: str | None = None, session: str | None = None) -> ObjectID:
        """Look up an object by name.

        Args:
            name: as bound in the store.
            scope, session: restrict the search; None: any.

        Raises:
            ObjectNotFound: no object that counts has this name.
            InvalidArgument: several have it.
        """
        matches = {
            (local_object.scope, local_object.session, str(local_object.object_id))
            for local_object in self.local_objects
            if name in local_object.names
            and scope in (None, local_object.scope)
            and session in (None, local_object.session)
        }
        if not matches:
            raise ObjectNotFound(
                f"no published object has the name {name!r}; only named and durable ones are published"
            )
        if len(matches) > 1:
            sessions = ", ".join(session_phrase(scope, session) for scope, session, _ in sorted(matches)[:3])
            raise InvalidArgument(
                f"{len(matches)} published objects have the name {name!r}, in {sessions}: pass --scope and --session, "
                "or an ID"
            )
        return ObjectID(next(iter(matches))[2])

    if not TYPE_CHECKING:  # so that a checker reports unknown names

        def __getattr__(self, name: str) -> Any:
            if name not in _FORMER_NAMES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            current = _FORMER_NAMES[name]
            warnings.warn(
                f"ClusterLocations.{name} is deprecated: use ClusterLocations.{current}",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(self, current)


def read_cluster_locations(api: Api, namespace: str | None = None) -> ClusterLocations:
    """Read the locations of all objects.

    Args:
        api: the cluster's.
        namespace: of the stores; None: all.

    Raises:
        VersionMismatch: the cluster's CRDs are missing, or of another version.
        AccessDenied: the credentials do not allow listing LocalObjects and Leases.
        ClusterUnavailable: the API server does not respond.
    """
    try:
        local_resources = api.read_all(resource_path("localobjects", namespace))
        global_resources = api.read_all(resource_path("globalobjects", namespace))
    except ResourceNotFound as error:
        raise diagnose_missing_crds(api) from error
    leases = {
        (str(lease_resource["metadata"].get("namespace")), lease.name): lease
        for lease_resource in api.read_all(lease_path(namespace), labels=f"{MANAGED_BY}={MANAGER}")
        for lease in [StoreLease.parse(lease_resource)]
    }
    now = api.now()
    live_leases = {key for key, lease in leases.items() if lease.is_live(now)}
    locations = ClusterLocations(nodes=_read_nodes(api))
    expired: set[str] = set()
    for resource in local_resources:
        local_object = LocalObject.parse(resource)
        bytes_by_node = locations.objects.setdefault(str(local_object.object_id), {})
        if (str(resource["metadata"].get("namespace")), local_object.lease) not in live_leases:
            expired.add(local_object.node)
        elif attracts_pods(resource, local_object):
            bytes_by_node[local_object.node] = max(local_object.bytes, bytes_by_node.get(local_object.node, 0))
            locations.local_objects.append(local_object)
    locations.expired_nodes = sorted(expired)
    for resource in global_resources:
        collection = GlobalObject.parse(resource)
        locations.collections[str(collection.object_id)] = collection
    return locations


def diagnose_missing_crds(api: Api) -> VersionMismatch:
    """Diagnose why the API server does not know this version of LocalObject."""
    try:
        group = api.get(f"/apis/{GROUP}")
    except ResourceNotFound:
        return VersionMismatch(
            f"the cluster {api.access.server} has no resources of {GROUP}: install them with '{INSTALL_COMMAND}'"
        )
    served_versions = [str(entry.get("version")) for entry in group.get("versions") or []]
    if VERSION in served_versions:
        return VersionMismatch(
            f"the cluster {api.access.server} lacks some resources of {GROUP} {VERSION}: install them with "
            f"'{INSTALL_COMMAND}'"
        )
    return VersionMismatch(
        f"the cluster {api.access.server} serves {GROUP} in {', '.join(served_versions) or 'no version'}, but this "
        f"installation uses {VERSION}: upgrade entrepot here, or the CRDs there ('{INSTALL_COMMAND}')"
    )


def attracts_pods(resource: Mapping[str, Any], local_object: LocalObject) -> bool:
    """Whether an object attracts pods, as long as the store that holds it is alive.

    Args:
        resource: as returned by the API.
        local_object: the same, parsed.
    """
    unavailable = local_object.available is not None and local_object.available.status is False
    return (
        not unavailable
        and local_object.state != "Lost"
        and not (resource.get("metadata") or {}).get("deletionTimestamp")
    )


def parse_node(resource: Mapping[str, Any]) -> Node:
    """The part of an API Node that placement needs."""
    spec = resource.get("spec") or {}
    return Node(resource["metadata"].get("labels") or {}, spec.get("taints") or [], bool(spec.get("unschedulable")))


def _read_nodes(api: Api) -> dict[str, Node] | None:
    try:
        resources = api.read_all("/api/v1/nodes")
    except AccessDenied:
        return None  # locations work without nodes; contradictions are then found only by the scheduler
    return {str(resource["metadata"]["name"]): parse_node(resource) for resource in resources}
