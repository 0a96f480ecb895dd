"""The operator's write requests: applied resources and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from entrepot_operator.controller.state.gates import EventRecord, GatedPod, gate_removal_patch
from entrepot_operator.controller.state.labels import LabelChange
from entrepot_operator.controller.state.owned_resources import MANAGER, OwnedResource
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.errors import CONFLICT, ClusterRefused, ResourceNotFound
from entrepot_operator.kubernetes.events import MAX_MESSAGE_LENGTH, event_manifest
from entrepot_operator.kubernetes.objects import API_VERSION, resource_path
from entrepot_operator.webhook.json_patch import Operation

UNPROCESSABLE_CONTENT = 422


class Applier:
    """Writes to the API, for one thread.

    Args:
        api: an exclusive connection.
        identity: of this operator, for events.
        label_manager: the field manager of the nodes' labels.
    """

    def __init__(self, api: Api, identity: str, label_manager: str = MANAGER) -> None:
        self._api = api
        self._identity = identity
        self._label_manager = label_manager

    def apply(self, resource: OwnedResource) -> None:
        """Apply a resource, by server-side apply."""
        self._api.apply(resource.path, resource.manifest, MANAGER)

    def apply_status(self, namespace: str, name: str, status: Mapping[str, Any]) -> bool:
        """Write the status of a Store; returns whether it still exists."""
        manifest = {"apiVersion": API_VERSION, "kind": "Store", "metadata": {"name": name}, "status": status}
        try:
            self._api.apply(f"{resource_path('stores', namespace, name)}/status", manifest, MANAGER)
        except ResourceNotFound:
            return False
        return True

    def apply_label(self, change: LabelChange) -> bool:
        """Change the label of a node; returns whether it still exists."""
        try:
            self._api.apply(f"/api/v1/nodes/{change.node}", change.manifest(), self._label_manager)
        except ResourceNotFound:
            return False
        except ClusterRefused as error:
            if error.status != CONFLICT:
                raise
            return False  # the node with this UID is gone
        return True

    def lift_gate(
        self, pod: GatedPod, compute_affinity: Callable[[dict[str, Any]], list[Operation]]
    ) -> Literal["gone", "drawn", "as it was"]:
        """Remove our gate from a pod, and write its new affinity; returns the outcome.

        Args:
            pod: the pod to release.
            compute_affinity: computes the patch of its affinity. If the API server rejects that, the pod is released
                unchanged: existing required affinity may only be narrowed.

        Raises:
            ClusterRefused: the pod's gates were changed concurrently; a later attempt may succeed.
        """
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            resource = self._api.get(path)
            gate_patch = gate_removal_patch(resource) if resource["metadata"].get("uid") == pod.uid else []
            if not gate_patch:
                return "gone"
            affinity_patch = compute_affinity(resource)
            try:
                self._api.json_patch(path, [*affinity_patch, *gate_patch])
            except ClusterRefused as error:
                if not affinity_patch or error.status != UNPROCESSABLE_CONTENT:
                    raise
                self._api.json_patch(path, gate_patch)
                return "as it was"
        except ResourceNotFound:
            return "gone"
        return "drawn" if affinity_patch else "as it was"

    def create_event(self, involved_object: Mapping[str, Any], record: EventRecord) -> None:
        """Report an event on a resource. Equal events are reported once, by any replica, as long as the cluster keeps
        events.

        Args:
            involved_object: ``apiVersion``, ``kind``, ``namespace``, ``name`` and ``uid`` of the resource.
            record: the event.
        """
        now = self._api.now()
        message = record.message
        manifest = event_manifest(
            involved_object,
            f"{involved_object['uid']}/{record.reason}/{record.dedup_key}",
            type=record.type,
            reason=record.reason,
            message=message if len(message) <= MAX_MESSAGE_LENGTH else message[: MAX_MESSAGE_LENGTH - 3] + "...",
            component=MANAGER,
            first=now,
            last=now,
        )
        manifest |= {"reportingComponent": MANAGER, "reportingInstance": self._identity[:128]}
        try:
            self._api.create(f"/api/v1/namespaces/{involved_object['namespace']}/events", manifest)
        except ClusterRefused as error:
            # It was reported before, or its namespace is being deleted.
            if error.status != CONFLICT and not isinstance(error, ResourceNotFound):
                raise

    def close(self) -> None:
        """Close the connection."""
        self._api.close()
