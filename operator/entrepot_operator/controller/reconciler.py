"""The leader's work on one key at a time: observe, decide with the pure functions, write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from entrepot.errors import AccessDenied, EntrepotError, InvalidArgument

from entrepot_operator.controller.applier import Applier
from entrepot_operator.controller.cache.cluster_cache import (
    ACCOUNT,
    GATE,
    LABEL,
    STATUS,
    STORE,
    SWEEP,
    ClusterCache,
    IndexReader,
    Key,
)
from entrepot_operator.controller.garbage_collection import collect_garbage
from entrepot_operator.controller.monitoring.json_logging import log_fields
from entrepot_operator.controller.monitoring.metrics import Metrics
from entrepot_operator.controller.settings import Settings
from entrepot_operator.controller.state import gates, gateway_container, labels, owned_resources, pod_account, status
from entrepot_operator.controller.state.gate_affinity import affinity_patch
from entrepot_operator.controller.state.gates import EventRecord
from entrepot_operator.controller.state.status import Failure, StoreSnapshot
from entrepot_operator.controller.work_queue import WorkQueue
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.errors import ClusterRefused
from entrepot_operator.kubernetes.objects import API_VERSION
from entrepot_operator.kubernetes.store_spec import StoreSpec, parse_store

log = logging.getLogger(__name__)

FULL_GC_SECONDS = 600.0


class Reconciler:
    """The leader's work, for one thread.

    Args:
        settings: of the operator.
        cache: its view of the cluster.
        queue: for keys to process again.
        api: an exclusive connection.
        now: current time by the API server's clock.
        metrics: receives counts.
    """

    def __init__(
        self,
        settings: Settings,
        cache: ClusterCache,
        queue: WorkQueue[Key],
        api: Api,
        now: Callable[[], datetime],
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._queue = queue
        self._api = api
        self._now = now
        self._metrics = metrics
        self._applier = Applier(api, settings.identity, settings.label_manager)
        self._failures: dict[str, tuple[Failure, ...]] = {}
        self._written_statuses: dict[str, dict[str, Any]] = {}  # the last status written, by the UID of its Store
        self._last_gc: datetime | None = None
        self._reported_unknown: set[str] = set()  # held pods already told that locations are currently unknown
        self._handlers: dict[str, Callable[[str], None]] = {
            STORE: self._reconcile_store,
            STATUS: self._reconcile_status,
            LABEL: self._reconcile_label,
            GATE: self._reconcile_gate,
            ACCOUNT: self._reconcile_account,
            SWEEP: self._collect_garbage,
        }

    def reset(self) -> None:
        """Drop the state of an earlier term as leader: others may have written since."""
        self._failures.clear()
        self._written_statuses.clear()
        self._reported_unknown.clear()
        self._last_gc = None

    def reconcile(self, key: Key) -> None:
        """Process one key, and write whatever must change.

        Raises:
            EntrepotError: it must be retried.
        """
        self._handlers[key[0]](key[1])

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    def _reconcile_store(self, name: str) -> None:
        resource = self._find_store(name)
        if resource is None:
            self._failures.pop(name, None)
            return
        failures: list[Failure] = []
        retry_error: EntrepotError | None = None
        try:
            spec = parse_store(resource)
            self._applier.apply(owned_resources.daemonset(resource, spec))
            conflict = status.find_conflict(name, spec, self._older_specs(resource), self._cache.index.nodes())
            failures += [conflict] if conflict is not None else []
        except InvalidArgument as error:
            failures.append(Failure("Invalid", str(error)))
        except AccessDenied as error:
            failures.append(Failure("Forbidden", str(error)))
            retry_error = error
        except ClusterRefused as error:
            failures.append(Failure("Refused", str(error)))
            retry_error = error
        self._failures[name] = tuple(failures)
        for failure in failures:
            self._report_event(
                _involved_object(resource), EventRecord("Warning", failure.reason, failure.message, failure.message)
            )
        self._reconcile_status(name)
        if retry_error is not None:
            raise retry_error

    def _reconcile_status(self, name: str) -> None:
        resource = self._find_store(name)
        if resource is None:
            return
        pods = [pod for pod in self._cache.pods.all().values() if pod.store == name]
        uid, current_status = str(resource["metadata"]["uid"]), resource.get("status") or {}
        previous_conditions = self._written_statuses.get(uid, current_status).get("conditions") or []
        try:
            spec = parse_store(resource)
        except InvalidArgument:
            spec = None
        snapshot = StoreSnapshot(
            generation=int(resource["metadata"].get("generation") or 0),
            spec=spec,
            daemonset=self._cache.daemonsets.get(f"{self._settings.namespace}/{owned_resources.daemonset_name(name)}"),
            pods=pods,
            live_nodes=self._cache.live_nodes(name, pods),
            published_objects=self._cache.published_count(name, pods),
            failures=(*self._failures.get(name, ()), *self._cache.problems()),
            conditions=previous_conditions,
        )
        desired_status = status.status_of(snapshot, self._now())
        if desired_status != current_status and self._applier.apply_status(
            self._settings.namespace, name, desired_status
        ):
            self._written_statuses[uid] = desired_status

    def _reconcile_account(self, _: str) -> None:
        publishing: list[Mapping[str, Any]] = []
        clustered: list[Mapping[str, Any]] = []
        namespace = self._settings.namespace
        for store in self._cache.stores.all().values():
            spec = _parse_spec(store)
            if store["metadata"].get("deletionTimestamp"):
                continue
            if spec is None or spec.publish.enabled:
                publishing.append(store)
            if spec is not None and gateway_container.uses_directory_in(spec.cluster, namespace):
                clustered.append(store)
        for owned_resource in pod_account.pod_account(namespace, publishing, clustered):
            self._applier.apply(owned_resource)

    def _reconcile_label(self, node: str) -> None:
        if not self._cache.synced:
            self._queue.add((LABEL, node), 1.0)
            return
        snapshot = self._cache.nodes.get(node)
        if snapshot is None:
            return
        ready = {node} if self._is_node_ready(node) else set[str]()
        for change in labels.label_changes([snapshot], ready):
            if not change.labelled and (remaining := self._label_hold_seconds(node)) > 0:
                self._queue.add((LABEL, node), remaining)
                continue
            if self._applier.apply_label(change):
                self._metrics.labels.labels("ready" if change.labelled else "none").inc()
                text = "has a store" if change.labelled else "no longer has a usable store"
                log.info("node %s %s", node, text, extra=log_fields(node=node))

    def _is_node_ready(self, node: str) -> bool:
        stores = self._cache.stores.all()
        for pod in self._cache.pods_on(node):
            resource = stores.get(f"{self._settings.namespace}/{pod.store}")
            if resource is None or resource["metadata"].get("deletionTimestamp"):
                continue
            if node in status.ready_nodes(_parse_spec(resource), [pod], self._cache.live_nodes(pod.store, [pod])):
                return True
        return False

    def _label_hold_seconds(self, node: str) -> float:
        """Seconds for which a label stays although the lease expired: after an outage of the API, publishers renew
        first.
        """
        if not any(pod.ready for pod in self._cache.pods_on(node)):
            return 0.0
        return self._settings.hold_seconds - self._cache.informers["leases"].connected_for()

    def _reconcile_gate(self, key: str) -> None:
        pod = self._cache.gated_pods.get(key)
        if pod is None:
            self._reported_unknown.discard(key)
            return
        now = self._now()
        involved_object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        }
        if not self._cache.are_locations_current() and not pod.problem and now < pod.deadline:
            problems = "; ".join(problem.message for problem in self._cache.problems())
            if problems and key not in self._reported_unknown:
                self._reported_unknown.add(key)
                self._report_event(
                    involved_object,
                    EventRecord("Warning", "ObjectsNotKnown", f"object locations are not known: {problems}"),
                )
            self._queue.add((GATE, key), 1.0)
            return
        self._reported_unknown.discard(key)
        decision = gates.decide(pod, self._cache.index.locations(pod.ids), now)
        outcome = ""
        if decision.lift:
            outcome = self._applier.lift_gate(
                pod, lambda resource: affinity_patch(resource, IndexReader(self._cache), self._settings.cluster_config)
            )
            if outcome == "gone":
                return
        for event in decision.events:
            self._report_event(involved_object, event)
        if decision.lift:
            reason = decision.events[0].reason
            self._metrics.gates_lifted.labels(reason).inc()
            text = decision.events[0].message
            log.info(
                "pod %s released, %s: %s",
                key,
                outcome,
                text,
                extra=log_fields(pod=key, reason=reason, affinity=outcome),
            )
        else:
            self._queue.add((GATE, key), decision.retry_seconds)

    def _collect_garbage(self, _: str) -> None:
        self._queue.add((SWEEP, ""), self._settings.sweep_seconds)
        now = self._now()
        is_holding = self._cache.informers["leases"].connected_for() < self._settings.hold_seconds
        is_full = self._last_gc is None or (now - self._last_gc).total_seconds() > FULL_GC_SECONDS
        if not self._cache.synced or is_holding or not (is_full or not all(self._cache.index.leases().values())):
            return
        plan = collect_garbage(self._api, self._settings.namespace, grace=self._settings.grace_seconds)
        self._last_gc = now
        self._metrics.sweeps.inc()
        if plan.to_mark or plan.leases or plan.orphans:
            log.info(
                "lost nodes: marked %d objects, removed %d leases and %d objects without a lease",
                len(plan.to_mark),
                len(plan.leases),
                len(plan.orphans),
            )

    def _find_store(self, name: str) -> dict[str, Any] | None:
        store = self._cache.stores.get(f"{self._settings.namespace}/{name}")
        return None if store is None or store["metadata"].get("deletionTimestamp") else store

    def _older_specs(self, resource: Mapping[str, Any]) -> dict[str, StoreSpec]:
        specs: dict[str, StoreSpec] = {}
        for store in self._cache.stores.all().values():
            spec = _parse_spec(store)
            if (
                spec is not None
                and _age_key(store) < _age_key(resource)
                and not store["metadata"].get("deletionTimestamp")
            ):
                specs[str(store["metadata"]["name"])] = spec
        return specs

    def _report_event(self, involved_object: Mapping[str, Any], event: EventRecord) -> None:
        try:
            self._applier.create_event(involved_object, event)
        except EntrepotError as error:
            # The action itself is done; the log says what the event would have said.
            log.warning(
                "%s %s: %s: %s (cannot write Event: %s)",
                involved_object["kind"],
                involved_object["name"],
                event.reason,
                event.message,
                error,
            )


def _involved_object(resource: Mapping[str, Any]) -> dict[str, Any]:
    metadata = resource["metadata"]
    return {"apiVersion": API_VERSION, "kind": "Store", **{key: metadata[key] for key in ("namespace", "name", "uid")}}


def _parse_spec(resource: Mapping[str, Any]) -> StoreSpec | None:
    try:
        return parse_store(resource)
    except InvalidArgument:
        return None


def _age_key(resource: Mapping[str, Any]) -> tuple[str, str]:
    return str(resource["metadata"].get("creationTimestamp") or ""), str(resource["metadata"]["name"])
