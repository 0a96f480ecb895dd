"""The operator's write requests: applied resources and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from entrepot_io.cluster.api import Api
from entrepot_io.cluster.errors import CONFLICT, ClusterRefused, ResourceNotFound
from entrepot_io.cluster.objects import API_VERSION, resource_path

from entrepot_operator.admission.patching import Operation
from entrepot_operator.controller.children import MANAGER, Child
from entrepot_operator.controller.gates import GatedPod, Told, lifting
from entrepot_operator.controller.labels import LabelChange
from entrepot_operator.events import LONGEST_MESSAGE, event

INVALID = 422


class Writer:
    """Writes to the API, for one thread.

    Args:
        api: an exclusive connection.
        identity: of this operator, for events.
        manager_of_labels: the field manager of the nodes' labels.
    """

    def __init__(self, api: Api, identity: str, manager_of_labels: str = MANAGER) -> None:
        self._api = api
        self._identity = identity
        self._manager_of_labels = manager_of_labels

    def apply(self, child: Child) -> None:
        """Apply a resource, by server-side apply."""
        self._api.apply(child.path, child.manifest, MANAGER)

    def status(self, namespace: str, name: str, status: Mapping[str, Any]) -> bool:
        """Write the status of a Store; returns whether it still exists."""
        manifest = {"apiVersion": API_VERSION, "kind": "Store", "metadata": {"name": name}, "status": status}
        try:
            self._api.apply(f"{resource_path('stores', namespace, name)}/status", manifest, MANAGER)
        except ResourceNotFound:
            return False
        return True

    def label(self, change: LabelChange) -> bool:
        """Change the label of a node; returns whether it still exists."""
        try:
            self._api.apply(f"/api/v1/nodes/{change.node}", change.manifest(), self._manager_of_labels)
        except ResourceNotFound:
            return False
        except ClusterRefused as error:
            if error.status != CONFLICT:
                raise
            return False  # the node with this UID is gone
        return True

    def lift(
        self, pod: GatedPod, draw: Callable[[dict[str, Any]], list[Operation]]
    ) -> Literal["gone", "drawn", "as it was"]:
        """Remove our gate from a pod, and write its new affinity; returns the outcome.

        Args:
            pod: the pod to release.
            draw: computes the patch of its affinity. If the API server rejects that, the pod is released unchanged:
                existing required affinity may only be narrowed.

        Raises:
            ClusterRefused: the pod's gates were changed concurrently; a later attempt may succeed.
        """
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            found = self._api.get(path)
            steps = lifting(found) if found["metadata"].get("uid") == pod.uid else []
            if not steps:
                return "gone"
            drawn = draw(found)
            try:
                self._api.edit(path, [*drawn, *steps])
            except ClusterRefused as error:
                if not drawn or error.status != INVALID:
                    raise
                self._api.edit(path, steps)
                return "as it was"
        except ResourceNotFound:
            return "gone"
        return "drawn" if drawn else "as it was"

    def event(self, about: Mapping[str, Any], told: Told) -> None:
        """Report an event on a resource. Equal events are reported once, by any replica, as long as the cluster keeps
        events.

        Args:
            about: ``apiVersion``, ``kind``, ``namespace``, ``name`` and ``uid`` of the resource.
            told: the event.
        """
        now = self._api.now()
        message = told.message
        manifest = event(
            about,
            f"{about['uid']}/{told.reason}/{told.once}",
            type=told.type,
            reason=told.reason,
            message=message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "...",
            component=MANAGER,
            first=now,
            last=now,
        )
        manifest |= {"reportingComponent": MANAGER, "reportingInstance": self._identity[:128]}
        try:
            self._api.create(f"/api/v1/namespaces/{about['namespace']}/events", manifest)
        except ClusterRefused as error:
            # It was reported before, or its namespace is being deleted.
            if error.status != CONFLICT and not isinstance(error, ResourceNotFound):
                raise

    def close(self) -> None:
        """Close the connection."""
        self._api.close()
