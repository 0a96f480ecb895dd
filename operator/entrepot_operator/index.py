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
from entrepot_io.cluster.objects import LocalObject, StoreLease
from entrepot_io.cluster.places import counts, node_of
from entrepot_io.placement.nodes import Node

Resource = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Held:
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


class Index:
    """Index of LocalObjects, the leases of their stores, and the nodes, as far as placement needs them. Thread-safe.

    Args:
        now: current time by the API server's clock.
    """

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._objects: dict[bytes, tuple[_Held, ...]] = {}
        self._counts: Counter[str] = Counter()
        self._ends: dict[str, datetime] = {}
        self._nodes: dict[str, Node] | None = None
        self._read: set[str] = set()
        self._unreadable = 0

    @property
    def synced(self) -> bool:
        """Whether everything was read at least once; until then, missing objects may well exist."""
        return self._read == {"objects", "leases", "nodes"}

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
        found: dict[str, dict[str, int]] = {}
        with self._lock:
            for one in ids:
                held = self._objects.get(_key(one))
                if held is None:
                    continue
                places: dict[str, int] = {}
                for each in held:
                    if each.available and self._lives(each.lease, now):
                        places[each.node] = max(each.bytes, places.get(each.node, 0))
                found[one] = places
        return found

    def nodes(self) -> Mapping[str, Node] | None:
        """The cluster's nodes by name, read-only; None: not read yet, or not allowed to be."""
        return self._nodes

    def live(self, lease: str) -> bool:
        """Whether a lease is valid."""
        with self._lock:
            return self._lives(lease, self._now())

    def leases(self) -> dict[str, bool]:
        """All leases, and whether they are valid."""
        now = self._now()
        with self._lock:
            return {name: now < end for name, end in self._ends.items()}

    def published(self, leases: Iterable[str]) -> int:
        """Number of objects in the stores of these leases, counting only valid ones."""
        now = self._now()
        with self._lock:
            return sum(self._counts[lease] for lease in leases if self._lives(lease, now))

    def put_objects(self, resources: Iterable[Resource]) -> None:
        """Replace all LocalObjects. The resources are consumed one by one and not kept.

        Args:
            resources: all of one namespace, from the API. If iterating raises, the error propagates and nothing
                changes.
        """
        objects: dict[bytes, tuple[_Held, ...]] = {}
        counts: Counter[str] = Counter()
        for resource in resources:
            one = self._parse(resource)
            if one is not None:
                key, held = one
                objects[key] = (*objects.get(key, ()), held)
                counts[held.lease] += 1
        with self._lock:
            self._objects, self._counts = objects, counts
            self._read.add("objects")

    def change_object(self, resource: Resource, *, gone: bool = False) -> str | None:
        """Apply the addition, change or removal of a LocalObject; returns its object's ID.

        Args:
            resource: its current, or last, state in the API.
            gone: whether it was removed.

        Returns:
            None: the resource could not be parsed, and nothing changed.
        """
        one = self._parse(resource)
        if one is None:
            return None
        key, held = one
        with self._lock:
            before = self._objects.get(key, ())
            kept = tuple(each for each in before if each.lease != held.lease or each.node != held.node)
            self._counts[held.lease] += (0 if gone else 1) - (len(before) - len(kept))
            if self._counts[held.lease] <= 0:
                del self._counts[held.lease]
            if not gone:
                kept = (*kept, held)
            if kept:
                self._objects[key] = kept
            else:
                self._objects.pop(key, None)
        return key.hex()

    def put_leases(self, resources: Iterable[Resource]) -> None:
        """Replace all Leases of publishers."""
        ends = dict(_ending(resource) for resource in resources)
        with self._lock:
            self._ends = ends
            self._read.add("leases")

    def change_lease(self, resource: Resource, *, gone: bool = False) -> bool:
        """Apply a change of a Lease; returns whether its validity changed."""
        name, end = _ending(resource)
        now = self._now()
        with self._lock:
            before = self._lives(name, now)
            if gone:
                self._ends.pop(name, None)
            else:
                self._ends[name] = end
            return before != self._lives(name, now)

    def put_nodes(self, resources: Iterable[Resource]) -> None:
        """Replace all Nodes."""
        nodes = {str(one["metadata"]["name"]): node_of(one) for one in resources}
        with self._lock:
            self._nodes = nodes
            self._read.add("nodes")

    def change_node(self, resource: Resource, *, gone: bool = False) -> bool:
        """Apply a change of a Node; returns whether it matters for placement."""
        name, node = str(resource["metadata"]["name"]), node_of(resource)
        with self._lock:
            before = self._nodes or {}
            if (name not in before) if gone else (before.get(name) == node):
                return False
            # Readers use the mapping without a lock, so replace it rather than modify it.
            after = {key: one for key, one in before.items() if key != name} if gone else {**before, name: node}
            self._nodes = after
        return True

    def _lives(self, lease: str, now: datetime) -> bool:
        end = self._ends.get(lease)
        return end is not None and now < end

    def _parse(self, resource: Resource) -> tuple[bytes, _Held] | None:
        try:
            one = LocalObject.parse(resource)
        except InvalidArgument:
            self._unreadable += 1
            return None
        held = _Held(sys.intern(one.lease), sys.intern(one.node), one.bytes, counts(resource, one))
        return one.object_id.binary, held


def _key(object_id: str) -> bytes:
    try:
        return bytes.fromhex(object_id)
    except ValueError:
        return b""


def _ending(resource: Resource) -> tuple[str, datetime]:
    lease = StoreLease.parse(resource)
    if lease.renewed is None:
        return sys.intern(lease.name), datetime.fromtimestamp(0, timezone.utc)
    return sys.intern(lease.name), lease.renewed + timedelta(seconds=lease.seconds)
