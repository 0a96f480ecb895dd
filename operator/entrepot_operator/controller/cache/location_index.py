"""In-memory index of object locations, from which the operator and its webhook answer without querying the cluster.

It keeps only what placement needs of a resource, a few hundred bytes: storing 10,000 complete resources would take more
memory for their managed fields than for everything else.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_operator.kubernetes.locations import attracts_pods, parse_node
from entrepot_operator.kubernetes.objects import LocalObject, StoreLease
from entrepot_operator.placement.nodes import Node

Resource = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Replica:
    """An object in the store of one node.

    Attributes:
        lease: without a valid one, the object does not count.
        node: where it is.
        bytes: its payload.
        available: whether it was available according to its publisher's last report.
    """

    lease: str
    node: str
    bytes: int
    available: bool


class LocationIndex:
    """Index of LocalObjects, the leases of their stores, and the nodes, as far as placement needs them. Thread-safe.

    Args:
        now: current time by the API server's clock.
    """

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._objects: dict[bytes, tuple[_Replica, ...]] = {}
        self._object_counts: Counter[str] = Counter()
        self._lease_ends: dict[str, datetime] = {}
        self._nodes: dict[str, Node] | None = None
        self._synced_kinds: set[str] = set()
        self._unreadable = 0

    @property
    def synced(self) -> bool:
        """Whether everything was read at least once; until then, missing objects may well exist."""
        return self._synced_kinds == {"objects", "leases", "nodes"}

    @property
    def unreadable(self) -> int:
        """Number of LocalObjects that could not be parsed, since the start."""
        return self._unreadable

    def __len__(self) -> int:
        """Number of distinct objects known."""
        return len(self._objects)

    def locations(self, ids: Iterable[str]) -> dict[str, dict[str, int]]:
        """Bytes by object and node, as accepted by ``inject``.

        Args:
            ids: object IDs of 40 hexadecimal digits.

        Returns:
            The known objects; one that no live store holds has no nodes: it is lost.
        """
        now = self._now()
        located: dict[str, dict[str, int]] = {}
        with self._lock:
            for object_id in ids:
                replicas = self._objects.get(_object_key(object_id))
                if replicas is None:
                    continue
                bytes_by_node: dict[str, int] = {}
                for replica in replicas:
                    if replica.available and self._is_live(replica.lease, now):
                        bytes_by_node[replica.node] = max(replica.bytes, bytes_by_node.get(replica.node, 0))
                located[object_id] = bytes_by_node
        return located

    def nodes(self) -> Mapping[str, Node] | None:
        """The cluster's nodes by name, read-only; None: not read yet, or not allowed to be."""
        return self._nodes

    def is_lease_live(self, lease: str) -> bool:
        """Whether a lease is valid."""
        with self._lock:
            return self._is_live(lease, self._now())

    def leases(self) -> dict[str, bool]:
        """All leases, and whether they are valid."""
        now = self._now()
        with self._lock:
            return {name: now < end for name, end in self._lease_ends.items()}

    def published_count(self, leases: Iterable[str]) -> int:
        """Number of objects in the stores of these leases, counting only valid ones."""
        now = self._now()
        with self._lock:
            return sum(self._object_counts[lease] for lease in leases if self._is_live(lease, now))

    def put_objects(self, resources: Iterable[Resource]) -> None:
        """Replace all LocalObjects. The resources are consumed one by one and not kept.

        Args:
            resources: all of one namespace, from the API. If iterating raises, the error propagates and nothing
                changes.
        """
        objects: dict[bytes, tuple[_Replica, ...]] = {}
        counts: Counter[str] = Counter()
        for resource in resources:
            parsed = self._parse(resource)
            if parsed is not None:
                key, replica = parsed
                objects[key] = (*objects.get(key, ()), replica)
                counts[replica.lease] += 1
        with self._lock:
            self._objects, self._object_counts = objects, counts
            self._synced_kinds.add("objects")

    def change_object(self, resource: Resource, *, gone: bool = False) -> str | None:
        """Apply the addition, change or removal of a LocalObject; returns its object's ID.

        Args:
            resource: its current, or last, state in the API.
            gone: whether it was removed.

        Returns:
            None: the resource could not be parsed, and nothing changed.
        """
        parsed = self._parse(resource)
        if parsed is None:
            return None
        key, replica = parsed
        with self._lock:
            before = self._objects.get(key, ())
            kept = tuple(other for other in before if other.lease != replica.lease or other.node != replica.node)
            self._object_counts[replica.lease] += (0 if gone else 1) - (len(before) - len(kept))
            if self._object_counts[replica.lease] <= 0:
                del self._object_counts[replica.lease]
            if not gone:
                kept = (*kept, replica)
            if kept:
                self._objects[key] = kept
            else:
                self._objects.pop(key, None)
        return key.hex()

    def put_leases(self, resources: Iterable[Resource]) -> None:
        """Replace all Leases of publishers."""
        ends = dict(_lease_end(resource) for resource in resources)
        with self._lock:
            self._lease_ends = ends
            self._synced_kinds.add("leases")

    def change_lease(self, resource: Resource, *, gone: bool = False) -> bool:
        """Apply a change of a Lease; returns whether its validity changed."""
        name, end = _lease_end(resource)
        now = self._now()
        with self._lock:
            before = self._is_live(name, now)
            if gone:
                self._lease_ends.pop(name, None)
            else:
                self._lease_ends[name] = end
            return before != self._is_live(name, now)

    def put_nodes(self, resources: Iterable[Resource]) -> None:
        """Replace all Nodes."""
        nodes = {str(resource["metadata"]["name"]): parse_node(resource) for resource in resources}
        with self._lock:
            self._nodes = nodes
            self._synced_kinds.add("nodes")

    def change_node(self, resource: Resource, *, gone: bool = False) -> bool:
        """Apply a change of a Node; returns whether it matters for placement."""
        name, node = str(resource["metadata"]["name"]), parse_node(resource)
        with self._lock:
            before = self._nodes or {}
            if (name not in before) if gone else (before.get(name) == node):
                return False
            # Readers use the mapping without a lock, so replace it rather than modify it.
            after = {key: other for key, other in before.items() if key != name} if gone else {**before, name: node}
            self._nodes = after
        return True

    def _is_live(self, lease: str, now: datetime) -> bool:
        end = self._lease_ends.get(lease)
        return end is not None and now < end

    def _parse(self, resource: Resource) -> tuple[bytes, _Replica] | None:
        try:
            local_object = LocalObject.parse(resource)
        except InvalidArgument:
            self._unreadable += 1
            return None
        replica = _Replica(
            sys.intern(local_object.lease),
            sys.intern(local_object.node),
            local_object.bytes,
            attracts_pods(resource, local_object),
        )
        return local_object.object_id.binary, replica


def _object_key(object_id: str) -> bytes:
    try:
        return bytes.fromhex(object_id)
    except ValueError:
        return b""


def _lease_end(resource: Resource) -> tuple[str, datetime]:
    lease = StoreLease.parse(resource)
    if lease.renewed is None:
        return sys.intern(lease.name), datetime.fromtimestamp(0, timezone.utc)
    return sys.intern(lease.name), lease.renewed + timedelta(seconds=lease.seconds)
