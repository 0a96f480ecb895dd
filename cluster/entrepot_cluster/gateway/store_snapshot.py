"""Finds out what a store has that is to be published: named objects, cluster sessions, and members of either."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from entrepot import inventory, raw_objects
from entrepot.cluster_sessions import ClusterSession, cluster_session
from entrepot.errors import CorruptData
from entrepot.ids import ObjectID
from entrepot.origins import origin_of

from entrepot_cluster.directory.model import NameEntry, PlaceEntry, SessionEntry, session_reference
from entrepot_cluster.gateway.object_source import Belonging
from entrepot_cluster.gateway.published import OWN_PREFIX, Snapshot

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.gateway.object_source import StoreObjects
    from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies

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
        self._members: dict[tuple[bytes, int], tuple[bytes, ...]] = {}  # of collections, by ID and generation

    def add_explicit(self, oid: bytes, generation: int) -> None:
        """Note an object that is to be published though nothing else asks for it."""
        with self._lock:
            self._explicit[oid] = generation

    def take(self) -> Snapshot:
        """List the store, and return what is to be published of it.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        snapshot = Snapshot()
        listed: dict[bytes, PlaceEntry] = {}
        declared: dict[tuple[str, str], ClusterSession | None] = {}
        references: dict[tuple[str, str], bytes] = {}
        wanted: dict[bytes, None] = {}
        collections: set[tuple[bytes, int]] = set()
        with self._lock:
            explicit = dict(self._explicit)
        for listing in inventory.everything(self._store):
            if listing.state not in _HERE or listing.id.binary in self._unrecorded:
                continue
            oid, place = listing.id.binary, (listing.scope, listing.session)
            if place not in declared:
                declared[place] = self._declaration(*place)
                references[place] = session_reference(*place)
            names = tuple(name for name in listing.names if not name.startswith(OWN_PREFIX))
            self._source.note(oid, listing.generation, Belonging(*place, names))
            entry = listed[oid] = self._entry(listing, place, references[place])
            is_copy = entry.origin is not None
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
        self._forget(collections)
        return snapshot

    def _declaration(self, scope: str, session: str) -> ClusterSession | None:
        try:
            return cluster_session(self._store._client, scope, session)  # pyright: ignore[reportPrivateUsage]
        except CorruptData:
            return None  # written by something else: not a declaration

    def _entry(self, listing: inventory.ObjectListing, place: tuple[str, str], session: bytes) -> PlaceEntry:
        origin = origin_of(self._store, listing.id, place)
        is_copy = origin is not None and origin.generation == listing.generation and bool(origin.lives)
        return PlaceEntry(
            listing.id.binary,
            listing.generation,
            listing.nbytes,
            session,
            origin=origin.lives[0] if origin is not None and is_copy else None,
        )

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
        with self._lock:
            for oid in [oid for oid, generation in self._explicit.items() if not self._has(oid, generation)]:
                del self._explicit[oid]

    def _has(self, oid: bytes, generation: int) -> bool:
        return raw_objects.generation_of(self._store, ObjectID(oid)) == generation
