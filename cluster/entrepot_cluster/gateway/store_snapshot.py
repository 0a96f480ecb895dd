"""Finds out what a store has that is to be published: named objects, cluster sessions, and members of either."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from entrepot import inventory, raw_objects
from entrepot._client.lost_marks import recorded_mark
from entrepot.ids import ObjectID
from entrepot.origins import recorded_copy

from entrepot_cluster.directory.model import NameEntry, PlaceEntry, SessionEntry, session_reference
from entrepot_cluster.gateway.object_source import Belonging
from entrepot_cluster.gateway.published import OWN_PREFIX, Snapshot, place_entry
from entrepot_cluster.gateway.replica_records import recorded_replicas
from entrepot_cluster.gateway.stale_records import StaleRecords

if TYPE_CHECKING:
    from entrepot import Store, _core
    from entrepot.cluster_sessions import ClusterSession

    from entrepot_cluster.gateway.object_source import StoreObjects
    from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies

MIN_FORGOTTEN = 1000
_HERE = frozenset({"sealed", "spilled", "evicting", "loading"})


class StoreSnapshots:
    """Takes snapshots. ``add_explicit`` may be called from any thread, the rest by one.

    Args:
        store: a connection to the store, in any session.
        source: is told where objects belong.
        unrecorded: copies that are being made here; they are left out until it is recorded what they are copies of.
    """

    def __init__(self, store: Store, source: StoreObjects, unrecorded: UnrecordedCopies) -> None:
        self._store = store
        self._source = source
        self._unrecorded = unrecorded
        self._lock = threading.Lock()
        self._explicit: dict[bytes, int] = {}  # generations of those to publish by request; guarded by _lock
        self._kept_explicit = 0  # how many there were when they were last looked at; of the thread
        self._stale_records = StaleRecords(store)
        self._members: dict[tuple[bytes, int], tuple[bytes, ...]] = {}  # of collections, by ID and generation

    def add_explicit(self, oid: bytes, generation: int) -> None:
        """Note an object that is to be published though nothing else asks for it."""
        with self._lock:
            self._explicit[oid] = generation

    @property
    def explicit_count(self) -> int:
        """How many objects are to be published by request."""
        with self._lock:
            return len(self._explicit)

    def forget_gone(self) -> None:
        """Forget what was to be published by request and is gone; every time that twice as much has gathered.

        While the directory is away, no snapshots are taken, which do the same.
        """
        if self.explicit_count > 2 * self._kept_explicit + MIN_FORGOTTEN:
            self._forget_explicit()

    def take(self, *, unpublished: bool = False) -> Snapshot:
        """List the store, and return what is to be published of it.

        Args:
            unpublished: also say which objects are not.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        snapshot = Snapshot()
        listed: dict[bytes, PlaceEntry] = {}
        declared: dict[tuple[str, str], ClusterSession | None] = {}
        references: dict[tuple[str, str], bytes] = {}
        belongings: dict[tuple[str, str, tuple[str, ...]], Belonging] = {}  # nearly all objects have the same
        wanted: dict[bytes, None] = {}
        collections: set[tuple[bytes, int]] = set()
        with self._lock:
            explicit = dict(self._explicit)
        for listing in inventory.everything(self._store):
            if listing.state not in _HERE or listing.id.binary in self._unrecorded:
                continue
            oid, place = listing.id.binary, (sys.intern(listing.scope), sys.intern(listing.session))
            record = recorded_copy(self._store, listing.id, place) if listing.nbytes == 0 else None
            if record is not None:
                if record[0].binary not in self._unrecorded:
                    self._stale_records.note(listing.id, *record)
                continue
            if listing.nbytes == 0 and (mark := recorded_mark(self._raw(), listing.id, place)) is not None:
                snapshot.marks[mark.oid.binary] = (mark, place)
                continue
            if listing.nbytes == 0 and (kept := recorded_replicas(self._store, listing.id)) is not None:
                snapshot.kept.append(kept)
                continue
            snapshot.objects[oid] = (listing.generation, *place)
            if place not in declared:
                declared[place] = self._source.terms.declaration(*place)
                references[place] = session_reference(*place)
            names = tuple(name for name in listing.names if not name.startswith(OWN_PREFIX))
            self._source.note(oid, listing.generation, belongings.setdefault((*place, names), Belonging(*place, names)))
            origin = self._source.origin(listing.id, listing.generation, *place)
            entry = place_entry(oid, listing.generation, listing.nbytes, references[place], origin)
            listed[oid] = entry
            is_copy = origin is not None
            replicas = origin.replicas if origin is not None else _replicas_of(declared[place])
            if replicas > 1 and len(names) == len(listing.names):
                snapshot.replicas[oid] = replicas
            if names or is_copy or declared[place] is not None or explicit.get(oid) == listing.generation:
                wanted[oid] = None
            for name in names:
                snapshot.names[(*place, name)] = NameEntry(*place, name, oid, listing.generation)
            if names or explicit.get(oid) == listing.generation:
                collections.add((oid, listing.generation))
                wanted.update(dict.fromkeys(self._members_of(oid, listing.generation)))
        for place, session in declared.items():
            if session is not None:
                snapshot.sessions[place] = SessionEntry(*place, session.replicas)
        snapshot.places = {oid: listed[oid] for oid in wanted if oid in listed}
        if unpublished:
            snapshot.unpublished = {oid: entry.generation for oid, entry in listed.items() if oid not in wanted}
        self._stale_records.delete()
        self._source.forget_all_but(snapshot.objects)
        self._forget(collections)
        return snapshot

    def _raw(self) -> _core.Client:
        return self._store._raw()  # pyright: ignore[reportPrivateUsage]

    def _members_of(self, oid: bytes, generation: int) -> tuple[bytes, ...]:
        key = (oid, generation)
        members = self._members.get(key)
        if members is None:
            object_id = ObjectID(oid)
            kind = inventory.kind_of(self._store, object_id)
            is_collection = kind is not None and kind.members is not None
            member_ids = inventory.members(self._store, object_id) if is_collection else []
            members = self._members[key] = tuple(member_id.binary for member_id in member_ids)
        return members

    def _forget(self, collections: set[tuple[bytes, int]]) -> None:
        """Forget what is not in the store any more."""
        self._members = {key: members for key, members in self._members.items() if key in collections}
        self._forget_explicit()

    def _forget_explicit(self) -> None:
        with self._lock:
            for oid in [oid for oid, generation in self._explicit.items() if not self._has(oid, generation)]:
                del self._explicit[oid]
            self._kept_explicit = len(self._explicit)

    def _has(self, oid: bytes, generation: int) -> bool:
        return raw_objects.generation_of(self._store, ObjectID(oid)) == generation


def _replicas_of(declared: ClusterSession | None) -> int:
    return 1 if declared is None else declared.replicas
