"""Locations of objects according to the cluster's API: LocalObjects with a valid lease, and the cluster's nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entrepot.errors import AccessDenied, InvalidArgument, ObjectNotFound, VersionMismatch
from entrepot.ids import ObjectID

from entrepot_io.cluster.api import Api
from entrepot_io.cluster.errors import ResourceNotFound
from entrepot_io.cluster.objects import (
    MANAGED_BY,
    MANAGER,
    VERSION,
    GlobalObject,
    LocalObject,
    StoreLease,
    lease_path,
    resource_path,
)
from entrepot_io.placement.locating import Places
from entrepot_io.placement.names import GROUP
from entrepot_io.placement.nodes import Node

INSTALL = "entrepot crds | kubectl apply --server-side -f -"


@dataclass
class ClusterPlaces(Places):
    """What the API reports.

    Attributes:
        objects: bytes by object and node. A known object that no live store holds has no nodes.
        nodes: the cluster's nodes; None: the credentials do not allow listing them.
        locals: the LocalObjects that count.
        collections: the GlobalObjects, by ID.
        expired: nodes whose store's lease has expired, and which are ignored.
    """

    locals: list[LocalObject] = field(default_factory=list[LocalObject])
    collections: dict[str, GlobalObject] = field(default_factory=dict[str, GlobalObject])
    expired: list[str] = field(default_factory=list[str])

    def members(self, oid: ObjectID) -> list[ObjectID] | None:
        """The members of a collection; None: no collection with this ID is known.

        Raises:
            InvalidArgument: it has too many members for the API to list.
        """
        found = self.collections.get(str(oid))
        if found is None:
            return None
        if found.members is None:
            raise InvalidArgument(
                f"the collection {oid} has {found.member_count} members, more than the cluster's API lists: "
                "ask the store (--from-store)"
            )
        return list(found.members)

    def named(self, name: str, *, scope: str | None = None, session: str | None = None) -> ObjectID:
        """Look up an object by name.

        Args:
            name: as bound in the store.
            scope, session: restrict the search; None: any.

        Raises:
            ObjectNotFound: no object that counts has this name.
            InvalidArgument: several have it.
        """
        fitting = {
            (one.scope, one.session, str(one.object_id))
            for one in self.locals
            if name in one.names and scope in (None, one.scope) and session in (None, one.session)
        }
        if not fitting:
            raise ObjectNotFound(
                f"no published object has the name {name!r}; only named and durable ones are published"
            )
        if len(fitting) > 1:
            places = ", ".join(f"session {session!r} of scope {scope!r}" for scope, session, _ in sorted(fitting)[:3])
            raise InvalidArgument(
                f"{len(fitting)} published objects have the name {name!r}, in {places}: give --scope and --session, "
                "or an ID"
            )
        return ObjectID(next(iter(fitting))[2])


def read_cluster(api: Api, namespace: str | None = None) -> ClusterPlaces:
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
        locals_ = api.read_all(resource_path("localobjects", namespace))
        globals_ = api.read_all(resource_path("globalobjects", namespace))
    except ResourceNotFound as error:
        raise missing_kinds(api) from error
    leases = {
        (str(one["metadata"].get("namespace")), found.name): found
        for one in api.read_all(lease_path(namespace), labels=f"{MANAGED_BY}={MANAGER}")
        for found in [StoreLease.parse(one)]
    }
    now = api.now()
    live = {key for key, lease in leases.items() if lease.live(now)}
    places = ClusterPlaces(nodes=_nodes(api))
    expired: set[str] = set()
    for resource in locals_:
        one = LocalObject.parse(resource)
        held = places.objects.setdefault(str(one.object_id), {})
        if (str(resource["metadata"].get("namespace")), one.lease) not in live:
            expired.add(one.node)
        elif counts(resource, one):
            held[one.node] = max(one.bytes, held.get(one.node, 0))
            places.locals.append(one)
    places.expired = sorted(expired)
    for resource in globals_:
        found = GlobalObject.parse(resource)
        places.collections[str(found.object_id)] = found
    return places


def missing_kinds(api: Api) -> VersionMismatch:
    """Diagnose why the API server does not know this version of LocalObject."""
    try:
        group = api.get(f"/apis/{GROUP}")
    except ResourceNotFound:
        return VersionMismatch(
            f"the cluster {api.access.server} has no resources of {GROUP}: install them, '{INSTALL}'"
        )
    served = [str(one.get("version")) for one in group.get("versions") or []]
    if VERSION in served:
        return VersionMismatch(
            f"the cluster {api.access.server} has not all resources of {GROUP} in {VERSION}: install them, '{INSTALL}'"
        )
    return VersionMismatch(
        f"the cluster {api.access.server} serves {GROUP} in {', '.join(served) or 'no version'}, and this installation "
        f"speaks {VERSION}: upgrade entrepot here, or the CRDs there ('{INSTALL}')"
    )


def counts(resource: Mapping[str, Any], one: LocalObject) -> bool:
    """Whether an object attracts pods, as long as the store that holds it is alive.

    Args:
        resource: as returned by the API.
        one: the same, parsed.
    """
    gone = one.available is not None and one.available.status is False
    return not gone and one.state != "Lost" and not (resource.get("metadata") or {}).get("deletionTimestamp")


def node_of(resource: Mapping[str, Any]) -> Node:
    """The part of an API Node that placement needs."""
    spec = resource.get("spec") or {}
    return Node(resource["metadata"].get("labels") or {}, spec.get("taints") or [], bool(spec.get("unschedulable")))


def _nodes(api: Api) -> dict[str, Node] | None:
    try:
        listed = api.read_all("/api/v1/nodes")
    except AccessDenied:
        return None  # locations work without nodes; contradictions are then found only by the scheduler
    return {str(one["metadata"]["name"]): node_of(one) for one in listed}
