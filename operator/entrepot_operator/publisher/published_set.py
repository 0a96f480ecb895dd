"""A publisher's requests: its lease, its objects."""

from __future__ import annotations

from typing import Any

from entrepot.errors import AccessDenied

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.errors import CONFLICT, ClusterRefused, ResourceNotFound
from entrepot_operator.kubernetes.locations import diagnose_missing_crds
from entrepot_operator.kubernetes.objects import (
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
from entrepot_operator.publisher.diff import PublishedObject
from entrepot_operator.publisher.limits import Limits
from entrepot_operator.publisher.snapshot import PublisherIdentity

_PLURALS = {"LocalObject": "localobjects", "GlobalObject": "globalobjects"}


class PublishedSet:
    """The resources of one publisher in the API. All belong to one Lease, and are removed with it.

    Args:
        api: the cluster's.
        namespace: of the resources.
        identity: node and Store whose objects these are.
        limits: with the duration of the lease.
    """

    def __init__(self, api: Api, namespace: str, identity: PublisherIdentity, limits: Limits) -> None:
        self._api = api
        self._namespace = namespace
        self._identity = identity
        self._limits = limits
        # Several publishers may report one collection: each owns its fields, and an owner reference, in it.
        self.manager = f"{MANAGER}-{identity.lease.rpartition('-')[2]}"
        self.lease_uid = ""
        self._node_owner: dict[str, Any] | None = None
        self._node_read = False
        self._generations: dict[str, int] = {}

    def renew(self, instance: str) -> bool:
        """Renew the lease; returns whether it is a new one, so that nothing belongs to it yet.

        Args:
            instance: of the store that responds.

        Raises:
            AccessDenied, ClusterRefused, ClusterUnavailable: it could not be written.
        """
        metadata: dict[str, Any] = {
            "name": self._identity.lease,
            "namespace": self._namespace,
            "labels": {MANAGED_BY: MANAGER},
            "annotations": {NODE_ANNOTATION: self._identity.node},
        }
        owner = self._node_owner_reference()
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        applied = self._api.apply(
            lease_path(self._namespace, self._identity.lease),
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": {
                    "holderIdentity": f"{self._identity.node}/{instance}",
                    "leaseDurationSeconds": self._limits.lease_seconds,
                    "renewTime": self._api.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                },
            },
            self.manager,
        )
        before, self.lease_uid = self.lease_uid, str(applied["metadata"]["uid"])
        return self.lease_uid != before

    def read(self) -> dict[str, PublishedObject]:
        """This publisher's resources in the API, by name. Those of an earlier lease are removed by Kubernetes.

        Raises:
            VersionMismatch: the cluster's CRDs are missing, or of another version.
            AccessDenied, ClusterRefused, ClusterUnavailable: they could not be read.
        """
        published: dict[str, PublishedObject] = {}
        try:
            locals_ = self._api.read_all(
                resource_path("localobjects", self._namespace), labels=f"{LEASE_LABEL}={self._identity.lease}"
            )
            globals_ = self._api.read_all(
                resource_path("globalobjects", self._namespace), labels=f"{MANAGED_BY}={MANAGER}"
            )
        except ResourceNotFound as error:
            raise diagnose_missing_crds(self._api) from error
        for resource in locals_:
            if self._is_mine(resource):
                self._record(published, LocalObject.parse(resource), resource)
        for resource in globals_:
            if self._is_mine(resource):
                self._record(published, GlobalObject.parse(resource), resource)
        return published

    def _record(
        self, by_name: dict[str, PublishedObject], published_object: PublishedObject, resource: dict[str, Any]
    ) -> None:
        by_name[published_object.name] = published_object
        self._generations[published_object.name] = int(resource["metadata"].get("generation") or 0)

    def apply(self, published_object: PublishedObject) -> None:
        """Write a spec."""
        applied = self._api.apply(
            self._path(published_object), self._manifest(published_object, owned=True), self.manager
        )
        self._generations[published_object.name] = int(applied["metadata"].get("generation") or 0)

    def write_status(self, published_object: PublishedObject, previous: PublishedObject) -> PublishedObject:
        """Write a status; returns the object with it.

        Args:
            published_object: with the status to write.
            previous: the last known object: an unchanged condition keeps its time.
        """
        generation = self._generations.get(published_object.name)
        status: dict[str, Any] = {"conditions": []}
        if generation is not None:
            status["observedGeneration"] = generation
        if isinstance(published_object, LocalObject):
            previous_condition = previous.available if isinstance(previous, LocalObject) else None
            status["state"] = published_object.state
        else:
            previous_condition = previous.complete if isinstance(previous, GlobalObject) else None
        condition = _condition(published_object)
        if condition is not None:
            status["conditions"] = [
                condition.with_transition_time(previous_condition, self._api.now()).to_dict(generation)
            ]
        manifest = {
            "apiVersion": API_VERSION,
            "kind": _kind(published_object),
            "metadata": {"name": published_object.name},
            "status": status,
        }
        self._api.apply(f"{self._path(published_object)}/status", manifest, self.manager)
        return published_object

    def delete(self, published_object: PublishedObject) -> None:
        """Delete an object from the API; a collection that other publishers report too is left to them."""
        self._generations.pop(published_object.name, None)
        if isinstance(published_object, LocalObject):
            self._api.delete(self._path(published_object))
            return
        try:
            current = self._api.get(self._path(published_object))
        except ResourceNotFound:
            return
        if self._owner_uids(current) - {self.lease_uid}:
            self._api.apply(self._path(published_object), self._manifest(published_object, owned=False), self.manager)
            return
        try:
            self._api.delete(self._path(published_object), version=str(current["metadata"]["resourceVersion"]))
        except ClusterRefused as error:
            if error.status != CONFLICT:
                raise
            # Another publisher has just reported it; the next read of the API shows whether it is still ours.

    def _manifest(self, published_object: PublishedObject, *, owned: bool) -> dict[str, Any]:
        labels = {MANAGED_BY: MANAGER}
        if isinstance(published_object, LocalObject):
            labels[LEASE_LABEL] = self._identity.lease
        metadata: dict[str, Any] = {"name": published_object.name, "namespace": self._namespace, "labels": labels}
        if owned:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "name": self._identity.lease,
                    "uid": self.lease_uid,
                }
            ]
        return {
            "apiVersion": API_VERSION,
            "kind": _kind(published_object),
            "metadata": metadata,
            "spec": published_object.spec(),
        }

    def _path(self, published_object: PublishedObject) -> str:
        return resource_path(_PLURALS[_kind(published_object)], self._namespace, published_object.name)

    def _is_mine(self, resource: dict[str, Any]) -> bool:
        return self.lease_uid in self._owner_uids(resource)

    @staticmethod
    def _owner_uids(resource: dict[str, Any]) -> set[str]:
        return {str(reference.get("uid")) for reference in resource["metadata"].get("ownerReferences") or []}

    def _node_owner_reference(self) -> dict[str, Any] | None:
        """The node as owner of the lease; None: it is not a node of the cluster, or may not be read."""
        if not self._node_read:
            try:
                node = self._api.get(f"/api/v1/nodes/{self._identity.node}")
            except (AccessDenied, ResourceNotFound):
                self._node_read = True  # then the lease ends only by expiring
            else:
                self._node_read = True
                uid = str(node["metadata"]["uid"])
                self._node_owner = {"apiVersion": "v1", "kind": "Node", "name": self._identity.node, "uid": uid}
        return self._node_owner


def _kind(published_object: PublishedObject) -> str:
    return type(published_object).__name__


def _condition(published_object: PublishedObject) -> Condition | None:
    return published_object.available if isinstance(published_object, LocalObject) else published_object.complete
