"""A publisher's requests: its lease, its objects."""

from __future__ import annotations

from typing import Any

from entrepot.errors import AccessDenied
from entrepot_io.cluster.api import Api
from entrepot_io.cluster.errors import CONFLICT, ClusterRefused, ResourceNotFound
from entrepot_io.cluster.objects import (
    API_VERSION,
    LEASE_LABEL,
    MANAGED_BY,
    MANAGER,
    NODE_ANNOTATION,
    Condition,
    GlobalObject,
    LocalObject,
    lease_path,
    resource_path,
)
from entrepot_io.cluster.places import missing_kinds

from entrepot_operator.publishing.bounds import Bounds
from entrepot_operator.publishing.observing import Origin
from entrepot_operator.publishing.plan import Published

_PLURALS = {"LocalObject": "localobjects", "GlobalObject": "globalobjects"}


class Shelf:
    """The resources of one publisher in the API. All belong to one Lease, and are removed with it.

    Args:
        api: the cluster's.
        namespace: of the resources.
        origin: node and Store whose objects these are.
        bounds: with the duration of the lease.
    """

    def __init__(self, api: Api, namespace: str, origin: Origin, bounds: Bounds) -> None:
        self._api = api
        self._namespace = namespace
        self._origin = origin
        self._bounds = bounds
        # Several publishers may report one collection: each owns its fields, and an owner reference, in it.
        self.manager = f"{MANAGER}-{origin.lease.rpartition('-')[2]}"
        self.lease_uid = ""
        self._node_owner: dict[str, Any] | None = None
        self._node_asked = False
        self._generations: dict[str, int] = {}

    def renew(self, instance: str) -> bool:
        """Renew the lease; returns whether it is a new one, so that nothing belongs to it yet.

        Args:
            instance: of the store that responds.

        Raises:
            AccessDenied, ClusterRefused, ClusterUnavailable: it could not be written.
        """
        metadata: dict[str, Any] = {
            "name": self._origin.lease,
            "namespace": self._namespace,
            "labels": {MANAGED_BY: MANAGER},
            "annotations": {NODE_ANNOTATION: self._origin.node},
        }
        owner = self._node()
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        applied = self._api.apply(
            lease_path(self._namespace, self._origin.lease),
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": {
                    "holderIdentity": f"{self._origin.node}/{instance}",
                    "leaseDurationSeconds": self._bounds.lease_seconds,
                    "renewTime": self._api.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                },
            },
            self.manager,
        )
        before, self.lease_uid = self.lease_uid, str(applied["metadata"]["uid"])
        return self.lease_uid != before

    def read(self) -> dict[str, Published]:
        """This publisher's resources in the API, by name. Those of an earlier lease are removed by Kubernetes.

        Raises:
            VersionMismatch: the cluster's CRDs are missing, or of another version.
            AccessDenied, ClusterRefused, ClusterUnavailable: they could not be read.
        """
        found: dict[str, Published] = {}
        try:
            locals_ = self._api.read_all(
                resource_path("localobjects", self._namespace), labels=f"{LEASE_LABEL}={self._origin.lease}"
            )
            globals_ = self._api.read_all(
                resource_path("globalobjects", self._namespace), labels=f"{MANAGED_BY}={MANAGER}"
            )
        except ResourceNotFound as error:
            raise missing_kinds(self._api) from error
        for resource in locals_:
            if self._is_mine(resource):
                self._note(found, LocalObject.parse(resource), resource)
        for resource in globals_:
            if self._is_mine(resource):
                self._note(found, GlobalObject.parse(resource), resource)
        return found

    def _note(self, found: dict[str, Published], one: Published, resource: dict[str, Any]) -> None:
        found[one.name] = one
        self._generations[one.name] = int(resource["metadata"].get("generation") or 0)

    def apply(self, one: Published) -> None:
        """Write a spec."""
        applied = self._api.apply(self._path(one), self._manifest(one, owned=True), self.manager)
        self._generations[one.name] = int(applied["metadata"].get("generation") or 0)

    def tell(self, one: Published, before: Published) -> Published:
        """Write a status; returns the object with it.

        Args:
            one: with the status to write.
            before: the last known object: an unchanged condition keeps its time.
        """
        generation = self._generations.get(one.name)
        status: dict[str, Any] = {"conditions": []}
        if generation is not None:
            status["observedGeneration"] = generation
        if isinstance(one, LocalObject):
            old = before.available if isinstance(before, LocalObject) else None
            status["state"] = one.state
        else:
            old = before.complete if isinstance(before, GlobalObject) else None
        wanted = _condition(one)
        if wanted is not None:
            status["conditions"] = [wanted.following(old, self._api.now()).to_dict(generation)]
        manifest = {"apiVersion": API_VERSION, "kind": _kind(one), "metadata": {"name": one.name}, "status": status}
        self._api.apply(f"{self._path(one)}/status", manifest, self.manager)
        return one

    def drop(self, one: Published) -> None:
        """Delete an object from the API; a collection that other publishers report too is left to them."""
        self._generations.pop(one.name, None)
        if isinstance(one, LocalObject):
            self._api.delete(self._path(one))
            return
        try:
            left = self._api.get(self._path(one))
        except ResourceNotFound:
            return
        if self._owners(left) - {self.lease_uid}:
            self._api.apply(self._path(one), self._manifest(one, owned=False), self.manager)
            return
        try:
            self._api.delete(self._path(one), version=str(left["metadata"]["resourceVersion"]))
        except ClusterRefused as error:
            if error.status != CONFLICT:
                raise
            # Another publisher has just reported it; the next read of the API shows whether it is still ours.

    def _manifest(self, one: Published, *, owned: bool) -> dict[str, Any]:
        labels = {MANAGED_BY: MANAGER}
        if isinstance(one, LocalObject):
            labels[LEASE_LABEL] = self._origin.lease
        metadata: dict[str, Any] = {"name": one.name, "namespace": self._namespace, "labels": labels}
        if owned:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "name": self._origin.lease,
                    "uid": self.lease_uid,
                }
            ]
        return {"apiVersion": API_VERSION, "kind": _kind(one), "metadata": metadata, "spec": one.spec()}

    def _path(self, one: Published) -> str:
        return resource_path(_PLURALS[_kind(one)], self._namespace, one.name)

    def _is_mine(self, resource: dict[str, Any]) -> bool:
        return self.lease_uid in self._owners(resource)

    @staticmethod
    def _owners(resource: dict[str, Any]) -> set[str]:
        return {str(one.get("uid")) for one in resource["metadata"].get("ownerReferences") or []}

    def _node(self) -> dict[str, Any] | None:
        """The node as owner of the lease; None: it is not a node of the cluster, or may not be read."""
        if not self._node_asked:
            try:
                node = self._api.get(f"/api/v1/nodes/{self._origin.node}")
            except (AccessDenied, ResourceNotFound):
                self._node_asked = True  # then the lease ends only by expiring
            else:
                self._node_asked = True
                uid = str(node["metadata"]["uid"])
                self._node_owner = {"apiVersion": "v1", "kind": "Node", "name": self._origin.node, "uid": uid}
        return self._node_owner


def _kind(one: Published) -> str:
    return type(one).__name__


def _condition(one: Published) -> Condition | None:
    return one.available if isinstance(one, LocalObject) else one.complete
