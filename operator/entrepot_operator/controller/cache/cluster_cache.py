"""The operator's view of the cluster, kept up to date by informers. Every replica maintains it; only one acts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from entrepot.errors import AccessDenied, EntrepotError, VersionMismatch

from entrepot_operator.controller.cache.location_index import LocationIndex
from entrepot_operator.controller.cache.tables import CombinedTable, FanOutSink, LocationIndexSink, Table
from entrepot_operator.controller.monitoring.json_logging import log_fields
from entrepot_operator.controller.state import snapshots
from entrepot_operator.controller.state.gates import GatedPod, parse_gated_pod
from entrepot_operator.controller.state.owned_resources import MANAGER as LABEL_MANAGER
from entrepot_operator.controller.state.owned_resources import NAME_LABEL, STORE_APP, daemonset_path
from entrepot_operator.controller.state.status import Failure
from entrepot_operator.controller.work_queue import WorkQueue
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.informer import Informer, Sink, WatchTarget
from entrepot_operator.kubernetes.objects import (
    API_VERSION,
    MANAGED_BY,
    MANAGER,
    NODE_ANNOTATION,
    lease_name,
    lease_path,
    resource_path,
)
from entrepot_operator.placement.nodes import Node

log = logging.getLogger(__name__)

# Work queue key: kind and name.
Key = tuple[str, str]
STORE, STATUS, LABEL, GATE, ACCOUNT, SWEEP = "store", "status", "label", "gate", "account", "sweep"
_COALESCE_SECONDS = 0.2
_PENDING_POD_FIELDS = "spec.nodeName=,status.phase=Pending"


class ClusterCache:
    """Tables, the index, and the informers that feed them.

    Args:
        namespace: of the Stores.
        connect: creates a connection for one thread.
        queue: receives what must be reconciled after a change.
        now: current time by the API server's clock.
        gates: namespaces whose pods may wait for their objects; empty: all; None: gates are not handled.
        manager: the field manager of the nodes' labels.
    """

    def __init__(
        self,
        namespace: str,
        connect: Callable[[], Api],
        queue: WorkQueue[Key],
        now: Callable[[], datetime],
        gates: Collection[str] | None = (),
        manager: str = LABEL_MANAGER,
    ) -> None:
        self._queue = queue
        self.index = LocationIndex(now)
        self.stores: Table[dict[str, Any]] = Table(_reduce_store, self._store_changed)
        self.daemonsets = Table(snapshots.daemonset, self._daemonset_changed)
        self.pods = Table(snapshots.pod, self._pod_changed)
        self.lease_nodes = Table(_node_of_lease, lambda *_: None)
        self.nodes = Table(lambda resource: snapshots.node(resource, manager), self._node_changed)
        gated_tables = {path: Table(parse_gated_pod, self._gated_changed) for path in _gated_pod_paths(gates)}
        self.gated_pods = CombinedTable(gated_tables.values())
        self._lock = threading.Lock()
        self._pods_by_object: dict[str, set[str]] = {}  # pods by the objects that they wait for
        # Pods of Stores, by node and name.
        self._store_pods_by_node: dict[str, dict[str, snapshots.StorePodSnapshot]] = {}
        self._live_leases: dict[str, bool] = {}
        store_selector = f"{NAME_LABEL}={STORE_APP}"
        publisher_selector = f"{MANAGED_BY}={MANAGER}"
        leases = FanOutSink(self.index.put_leases, self.index.change_lease, self.lease_nodes)
        nodes = FanOutSink(self.index.put_nodes, self.index.change_node, self.nodes)
        sinks: list[tuple[WatchTarget, Sink]] = [
            (WatchTarget("stores", resource_path("stores", namespace), custom_resource=True), self.stores),
            (WatchTarget("daemonsets", daemonset_path(namespace), store_selector), self.daemonsets),
            (WatchTarget("store-pods", f"/api/v1/namespaces/{namespace}/pods", store_selector), self.pods),
            (WatchTarget("leases", lease_path(namespace), publisher_selector), leases),
            (WatchTarget("nodes", "/api/v1/nodes"), nodes),
            (
                WatchTarget("localobjects", resource_path("localobjects", namespace), custom_resource=True),
                LocationIndexSink(self.index, self._object_changed),
            ),
            # A gated pod has no node yet; other pods leave the selection when they get one.
            *(
                (WatchTarget(name, path, fields=_PENDING_POD_FIELDS), gated_tables[path])
                for path, name in _gated_pod_paths(gates).items()
            ),
        ]
        self.informers = {
            target.name: Informer(target, connect, sink, lambda name, error: _log_problem(name, error))
            for target, sink in sinks
        }

    @property
    def synced(self) -> bool:
        """Whether everything was read at least once."""
        return all(informer.synced for informer in self.informers.values())

    def are_locations_current(self) -> bool:
        """Whether object locations were read, and are being followed."""
        informers = (self.informers[name] for name in ("localobjects", "leases", "nodes"))
        return self.index.synced and all(informer.connected_for() > 0 for informer in informers)

    def problems(self) -> list[Failure]:
        """Errors of informers that cannot follow their resources at the moment."""
        return [
            Failure(_error_reason(error), f"cannot watch {name}: {error}")
            for name, informer in self.informers.items()
            if (error := informer.problem) is not None
        ]

    def start(self) -> None:
        """Start following."""
        for informer in self.informers.values():
            informer.start()

    def stop(self) -> None:
        """Stop all informers."""
        for informer in self.informers.values():
            informer.stop()
        for informer in self.informers.values():
            informer.join(5.0)

    def pods_on(self, node: str) -> list[snapshots.StorePodSnapshot]:
        """The Stores' pods on a node."""
        with self._lock:
            return list(self._store_pods_by_node.get(node, {}).values())

    def live_nodes(self, store: str, pods: Iterable[snapshots.StorePodSnapshot]) -> frozenset[str]:
        """Of the nodes where a Store has a pod, those whose publisher's lease is valid."""
        return frozenset(pod.node for pod in pods if pod.node and self.index.is_lease_live(lease_name(store, pod.node)))

    def published_count(self, store: str, pods: Iterable[snapshots.StorePodSnapshot]) -> int:
        """Number of a Store's published objects that count."""
        return self.index.published_count({lease_name(store, pod.node) for pod in pods if pod.node})

    def enqueue_lease_changes(self) -> bool:
        """Queue whatever depends on leases that became valid or expired since the last call; returns whether there were
        any.
        """
        live = self.index.leases()
        before, self._live_leases = self._live_leases, live
        changed = {name for name in before.keys() | live.keys() if before.get(name, False) != live.get(name, False)}
        if not changed:
            return False
        nodes = dict(self.lease_nodes.all().values())
        for name in changed:
            if name in nodes:
                self._queue.add((LABEL, nodes[name]))
        self.enqueue_all(STATUS, GATE)
        if not all(live.get(name, False) for name in changed):
            self._queue.add((SWEEP, ""))
        return True

    def enqueue_all(self, *kinds: str) -> None:
        """Queue all items of these kinds."""
        tables: Mapping[str, Table[Any] | CombinedTable[Any]] = {
            STORE: self.stores,
            STATUS: self.stores,
            LABEL: self.nodes,
            GATE: self.gated_pods,
        }
        for kind in kinds:
            for key in tables[kind].all() if kind in tables else ("",):
                name = key.rpartition("/")[2] if kind in (STORE, STATUS) else key
                self._queue.add((kind, name))

    def _store_changed(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        if _spec_version(before) == _spec_version(after):
            self._queue.add((STATUS, _store_name(before or after)), _COALESCE_SECONDS)
            return
        self._queue.add((ACCOUNT, ""))
        self.enqueue_all(STORE)  # Stores may conflict with each other
        for pod in self.pods.all().values():
            if pod.node:
                self._queue.add((LABEL, pod.node))

    def _daemonset_changed(
        self, before: snapshots.DaemonSetSnapshot | None, after: snapshots.DaemonSetSnapshot | None
    ) -> None:
        daemonset = after or before
        assert daemonset is not None
        if before is None or after is None or before.generation != after.generation:
            self._queue.add((STORE, daemonset.store), _COALESCE_SECONDS)
        self._queue.add((STATUS, daemonset.store), _COALESCE_SECONDS)

    def _pod_changed(self, before: snapshots.StorePodSnapshot | None, after: snapshots.StorePodSnapshot | None) -> None:
        with self._lock:
            if before is not None:
                self._store_pods_by_node[before.node].pop(before.name)
                if not self._store_pods_by_node[before.node]:
                    del self._store_pods_by_node[before.node]
            if after is not None:
                self._store_pods_by_node.setdefault(after.node, {})[after.name] = after
        for pod in (before, after):
            if pod is not None:
                self._queue.add((STATUS, pod.store), _COALESCE_SECONDS)
                if pod.node:
                    self._queue.add((LABEL, pod.node))

    def _node_changed(self, _: snapshots.NodeSnapshot | None, after: snapshots.NodeSnapshot | None) -> None:
        if after is not None:
            self._queue.add((LABEL, after.name))

    def _gated_changed(self, before: GatedPod | None, after: GatedPod | None) -> None:
        with self._lock:
            if before is not None:
                for object_id in before.ids:
                    self._pods_by_object[object_id].discard(before.key)
                    if not self._pods_by_object[object_id]:
                        del self._pods_by_object[object_id]
            if after is not None:
                for object_id in after.ids:
                    self._pods_by_object.setdefault(object_id, set()).add(after.key)
        if after is not None:
            self._queue.add((GATE, after.key))

    def _object_changed(self, object_id: str | None) -> None:
        if object_id is None:
            self.enqueue_all(GATE)
            return
        with self._lock:
            keys = tuple(self._pods_by_object.get(object_id, ()))
        for key in keys:
            self._queue.add((GATE, key))


class IndexReader:
    """The webhook's view: the index, while it is up to date."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    @property
    def synced(self) -> bool:
        """Whether everything was read once, and is still followed."""
        return self._cache.are_locations_current()

    def locations(self, ids: Iterable[str]) -> Mapping[str, Mapping[str, int]]:
        """Bytes by object and node; see ``LocationIndex.locations``."""
        return self._cache.index.locations(ids)

    def nodes(self) -> Mapping[str, Node] | None:
        """The cluster's nodes; None: not read yet."""
        return self._cache.index.nodes()


def _gated_pod_paths(gates: Collection[str] | None) -> dict[str, str]:
    """Paths under which waiting pods are watched, with names for their informers."""
    if gates is None:
        return {}
    if not gates:
        return {"/api/v1/pods": "held-pods"}
    return {f"/api/v1/namespaces/{namespace}/pods": f"held-pods of {namespace}" for namespace in sorted(set(gates))}


def _reduce_store(resource: Mapping[str, Any]) -> dict[str, Any]:
    """A Store without its managed fields."""
    metadata = {key: value for key, value in resource["metadata"].items() if key != "managedFields"}
    return {"apiVersion": API_VERSION, "kind": "Store", **resource, "metadata": metadata}


def _spec_version(store: dict[str, Any] | None) -> Any:
    if store is None:
        return None
    metadata = store["metadata"]
    return metadata.get("uid"), metadata.get("generation"), metadata.get("deletionTimestamp")


def _store_name(store: dict[str, Any] | None) -> str:
    assert store is not None
    return str(store["metadata"]["name"])


def _node_of_lease(resource: Mapping[str, Any]) -> tuple[str, str] | None:
    metadata = resource["metadata"]
    node = (metadata.get("annotations") or {}).get(NODE_ANNOTATION)
    return (str(metadata["name"]), str(node)) if node else None


def _error_reason(error: EntrepotError) -> str:
    if isinstance(error, AccessDenied):
        return "Forbidden"
    return "WrongVersion" if isinstance(error, VersionMismatch) else "Unreachable"


def _log_problem(name: str, error: EntrepotError) -> None:
    log.warning("cannot watch %s: %s", name, error, extra=log_fields(resource=name, code=error.code))
