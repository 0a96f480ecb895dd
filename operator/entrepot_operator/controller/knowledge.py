"""The operator's view of the cluster, kept up to date by watchers. Every replica maintains it; only one acts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from entrepot.errors import AccessDenied, EntrepotError, VersionMismatch
from entrepot_io.cluster.api import Api
from entrepot_io.cluster.objects import (
    API_VERSION,
    MANAGED_BY,
    MANAGER,
    NODE_ANNOTATION,
    lease_name,
    lease_path,
    resource_path,
)
from entrepot_io.placement.nodes import Node

from entrepot_operator.controller import observed
from entrepot_operator.controller.children import MANAGER as MANAGER_OF_LABELS
from entrepot_operator.controller.children import NAME, STORE_APP, daemonset_path
from entrepot_operator.controller.gates import GatedPod, gated
from entrepot_operator.controller.lines import facts
from entrepot_operator.controller.queue import WorkQueue
from entrepot_operator.controller.status import Failure
from entrepot_operator.controller.tables import Both, Objects, Several, Table
from entrepot_operator.index import Index
from entrepot_operator.watching import Sink, Source, Watcher

log = logging.getLogger(__name__)

# Work queue key: kind and name.
Key = tuple[str, str]
STORE, STATUS, LABEL, GATE, ACCOUNT, SWEEP = "store", "status", "label", "gate", "account", "sweep"
_COALESCE_SECONDS = 0.2
_HELD = "spec.nodeName=,status.phase=Pending"


class Knowledge:
    """Tables, the index, and the watchers that feed them.

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
        manager: str = MANAGER_OF_LABELS,
    ) -> None:
        self._queue = queue
        self.index = Index(now)
        self.stores: Table[dict[str, Any]] = Table(_store, self._store_changed)
        self.daemonsets = Table(observed.daemonset, self._daemonset_changed)
        self.pods = Table(observed.pod, self._pod_changed)
        self.lease_nodes = Table(_node_of_lease, lambda *_: None)
        self.nodes = Table(lambda found: observed.node(found, manager), self._node_changed)
        held = {path: Table(gated, self._gated_changed) for path in _pods(gates)}
        self.gated = Several(held.values())
        self._lock = threading.Lock()
        self._waiting: dict[str, set[str]] = {}  # pods by the objects that they wait for
        self._on_node: dict[str, dict[str, observed.StorePod]] = {}  # pods of Stores by node and name
        self._live: dict[str, bool] = {}
        ours = f"{NAME}={STORE_APP}"
        publishers = f"{MANAGED_BY}={MANAGER}"
        leases = Both(self.index.put_leases, self.index.change_lease, self.lease_nodes)
        nodes = Both(self.index.put_nodes, self.index.change_node, self.nodes)
        sinks: list[tuple[Source, Sink]] = [
            (Source("stores", resource_path("stores", namespace), ours=True), self.stores),
            (Source("daemonsets", daemonset_path(namespace), ours), self.daemonsets),
            (Source("store-pods", f"/api/v1/namespaces/{namespace}/pods", ours), self.pods),
            (Source("leases", lease_path(namespace), publishers), leases),
            (Source("nodes", "/api/v1/nodes"), nodes),
            (
                Source("localobjects", resource_path("localobjects", namespace), ours=True),
                Objects(self.index, self._object_changed),
            ),
            # A gated pod has no node yet; other pods leave the selection when they get one.
            *((Source(name, path, fields=_HELD), held[path]) for path, name in _pods(gates).items()),
        ]
        self.watchers = {
            source.name: Watcher(source, connect, sink, lambda name, error: _say(name, error)) for source, sink in sinks
        }

    @property
    def synced(self) -> bool:
        """Whether everything was read at least once."""
        return all(one.synced for one in self.watchers.values())

    def followed(self) -> bool:
        """Whether object locations were read, and are being followed."""
        needed = (self.watchers[name] for name in ("localobjects", "leases", "nodes"))
        return self.index.synced and all(one.connected_for() > 0 for one in needed)

    def problems(self) -> list[Failure]:
        """What cannot be followed at the moment."""
        return [
            Failure(_reason(error), f"{name} cannot be followed: {error}")
            for name, one in self.watchers.items()
            if (error := one.problem) is not None
        ]

    def start(self) -> None:
        """Start following."""
        for one in self.watchers.values():
            one.start()

    def stop(self) -> None:
        """Stop all watchers."""
        for one in self.watchers.values():
            one.stop()
        for one in self.watchers.values():
            one.join(5.0)

    def pods_on(self, node: str) -> list[observed.StorePod]:
        """The Stores' pods on a node."""
        with self._lock:
            return list(self._on_node.get(node, {}).values())

    def heard(self, store: str, pods: Iterable[observed.StorePod]) -> frozenset[str]:
        """Of the nodes where a Store has a pod, those whose publisher's lease is valid."""
        return frozenset(one.node for one in pods if one.node and self.index.live(lease_name(store, one.node)))

    def published(self, store: str, pods: Iterable[observed.StorePod]) -> int:
        """Number of a Store's published objects that count."""
        return self.index.published({lease_name(store, one.node) for one in pods if one.node})

    def look_at_leases(self) -> bool:
        """Queue whatever depends on leases that became valid or expired since the last call; returns whether there were
        any.
        """
        live = self.index.leases()
        before, self._live = self._live, live
        changed = {name for name in before.keys() | live.keys() if before.get(name, False) != live.get(name, False)}
        if not changed:
            return False
        nodes = dict(self.lease_nodes.all().values())
        for name in changed:
            if name in nodes:
                self._queue.add((LABEL, nodes[name]))
        self.look_at_all(STATUS, GATE)
        if not all(live.get(name, False) for name in changed):
            self._queue.add((SWEEP, ""))
        return True

    def look_at_all(self, *kinds: str) -> None:
        """Queue all items of these kinds."""
        tables: Mapping[str, Table[Any] | Several[Any]] = {
            STORE: self.stores,
            STATUS: self.stores,
            LABEL: self.nodes,
            GATE: self.gated,
        }
        for kind in kinds:
            for key in tables[kind].all() if kind in tables else ("",):
                name = key.rpartition("/")[2] if kind in (STORE, STATUS) else key
                self._queue.add((kind, name))

    def _store_changed(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        if _wish(before) == _wish(after):
            self._queue.add((STATUS, _name(before or after)), _COALESCE_SECONDS)
            return
        self._queue.add((ACCOUNT, ""))
        self.look_at_all(STORE)  # Stores may conflict with each other
        for pod in self.pods.all().values():
            if pod.node:
                self._queue.add((LABEL, pod.node))

    def _daemonset_changed(self, before: observed.DaemonSetSeen | None, after: observed.DaemonSetSeen | None) -> None:
        one = after or before
        assert one is not None
        if before is None or after is None or before.generation != after.generation:
            self._queue.add((STORE, one.store), _COALESCE_SECONDS)
        self._queue.add((STATUS, one.store), _COALESCE_SECONDS)

    def _pod_changed(self, before: observed.StorePod | None, after: observed.StorePod | None) -> None:
        with self._lock:
            if before is not None:
                self._on_node[before.node].pop(before.name)
                if not self._on_node[before.node]:
                    del self._on_node[before.node]
            if after is not None:
                self._on_node.setdefault(after.node, {})[after.name] = after
        for one in (before, after):
            if one is not None:
                self._queue.add((STATUS, one.store), _COALESCE_SECONDS)
                if one.node:
                    self._queue.add((LABEL, one.node))

    def _node_changed(self, _: observed.NodeSeen | None, after: observed.NodeSeen | None) -> None:
        if after is not None:
            self._queue.add((LABEL, after.name))

    def _gated_changed(self, before: GatedPod | None, after: GatedPod | None) -> None:
        with self._lock:
            if before is not None:
                for one in before.ids:
                    self._waiting[one].discard(before.key)
                    if not self._waiting[one]:
                        del self._waiting[one]
            if after is not None:
                for one in after.ids:
                    self._waiting.setdefault(one, set()).add(after.key)
        if after is not None:
            self._queue.add((GATE, after.key))

    def _object_changed(self, object_id: str | None) -> None:
        if object_id is None:
            self.look_at_all(GATE)
            return
        with self._lock:
            keys = tuple(self._waiting.get(object_id, ()))
        for key in keys:
            self._queue.add((GATE, key))


class Known:
    """The webhook's view: the index, while it is up to date."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge

    @property
    def synced(self) -> bool:
        """Whether everything was read once, and is still followed."""
        return self._knowledge.followed()

    def locations(self, ids: Iterable[str]) -> Mapping[str, Mapping[str, int]]:
        """Bytes by object and node; see ``Index.locations``."""
        return self._knowledge.index.locations(ids)

    def nodes(self) -> Mapping[str, Node] | None:
        """The cluster's nodes; None: not read yet."""
        return self._knowledge.index.nodes()


def _pods(gates: Collection[str] | None) -> dict[str, str]:
    """Where to look for waiting pods: names of watchers by path."""
    if gates is None:
        return {}
    if not gates:
        return {"/api/v1/pods": "held-pods"}
    return {f"/api/v1/namespaces/{one}/pods": f"held-pods of {one}" for one in sorted(set(gates))}


def _store(resource: Mapping[str, Any]) -> dict[str, Any]:
    """A Store without its managed fields."""
    metadata = {key: value for key, value in resource["metadata"].items() if key != "managedFields"}
    return {"apiVersion": API_VERSION, "kind": "Store", **resource, "metadata": metadata}


def _wish(store: dict[str, Any] | None) -> Any:
    if store is None:
        return None
    metadata = store["metadata"]
    return metadata.get("uid"), metadata.get("generation"), metadata.get("deletionTimestamp")


def _name(store: dict[str, Any] | None) -> str:
    assert store is not None
    return str(store["metadata"]["name"])


def _node_of_lease(resource: Mapping[str, Any]) -> tuple[str, str] | None:
    metadata = resource["metadata"]
    node = (metadata.get("annotations") or {}).get(NODE_ANNOTATION)
    return (str(metadata["name"]), str(node)) if node else None


def _reason(error: EntrepotError) -> str:
    if isinstance(error, AccessDenied):
        return "Forbidden"
    return "WrongVersion" if isinstance(error, VersionMismatch) else "Unreachable"


def _say(name: str, error: EntrepotError) -> None:
    log.warning("%s cannot be followed: %s", name, error, extra=facts(resource=name, code=error.code))
