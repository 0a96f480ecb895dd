"""Determines what of a store to publish: named and durable objects, and members of collections among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from entrepot import inventory
from entrepot.errors import EntrepotError, StoreUnavailable
from entrepot.ids import ObjectID
from entrepot.phrases import session_phrase

from entrepot_operator.kubernetes.objects import (
    AVAILABLE,
    COMPLETE,
    MAX_MEMBERS,
    MAX_NAME_LENGTH,
    MAX_NAMES,
    MAX_TYPE_LENGTH,
    Condition,
    GlobalObject,
    LocalObject,
    State,
    lease_name,
)
from entrepot_operator.publisher.limits import Limits

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.durable import Durable
    from entrepot.inventory import Kind, ObjectListing

# Prefix of Entrepot's own records: lineage, statistics, declarations. They are read in place, never by a pod.
INTERNAL_PREFIX = "entrepot."
_STATES: dict[str, State] = {
    "sealed": "InMemory",
    "evicting": "InMemory",
    "spilled": "OnDisk",
    "loading": "OnDisk",
    "lost": "Lost",
}
_AVAILABILITY = {
    "InMemory": Condition(AVAILABLE, True, "InMemory", "in memory in the node's store"),
    "OnDisk": Condition(AVAILABLE, True, "OnDisk", "on disk; the node's store reloads it when it is read"),
    "Lost": Condition(AVAILABLE, False, "BytesLost", "the node's store has its metadata, but its bytes are lost"),
}
_ALL_MEMBERS_LISTED = Condition(COMPLETE, True, "AllMembers", "all members are listed")


@dataclass(frozen=True)
class PublisherIdentity:
    """The node and Store that a publisher reports for.

    Attributes:
        node: its name in the cluster.
        store: the Store that the node's store belongs to.
    """

    node: str
    store: str

    @property
    def lease(self) -> str:
        """The Lease without which its objects do not count."""
        return lease_name(self.store, self.node)


@dataclass
class DesiredState:
    """The desired state of the API.

    Attributes:
        locals, globals: by name in the API.
        left_out: number of objects that exceed the limits.
        notes: errors in individual sessions.
    """

    locals: dict[str, LocalObject] = field(default_factory=dict[str, LocalObject])
    globals: dict[str, GlobalObject] = field(default_factory=dict[str, GlobalObject])
    left_out: int = 0
    notes: list[str] = field(default_factory=list[str])


class StoreScanner:
    """Scans a store repeatedly, and caches what cannot change.

    Args:
        identity: node and Store whose objects these are.
        limits: limits on what is published.
    """

    def __init__(self, identity: PublisherIdentity, limits: Limits) -> None:
        self._identity = identity
        self._limits = limits
        self._kinds: dict[tuple[ObjectID, int], Kind] = {}
        self._members: dict[tuple[ObjectID, int], list[ObjectID]] = {}

    def scan(self, store: Store) -> DesiredState:
        """Return the objects of the store to publish now.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        desired = DesiredState()
        chosen, member_listings = self._select_objects(store, desired)
        self._cache_kinds(store, chosen)
        missing = self._cache_members(store, chosen) - member_listings.keys()
        if missing:
            # A new collection, whose members were skipped: read the list again.
            chosen, member_listings = self._select_objects(store, desired)
            self._cache_kinds(store, chosen)
        self._cache_kinds(store, [(item, False) for item in member_listings.values()])
        objects = {item.name: item for item in self._local_objects(store, chosen, member_listings)}
        ranked = sorted(objects.values(), key=lambda item: (-item.bytes, item.name))
        kept = [item for item in ranked if item.bytes >= self._limits.min_bytes][: self._limits.max_objects]
        desired.left_out = len(ranked) - len(kept)
        desired.locals = {item.name: item for item in kept}
        desired.globals = {item.name: item for item in self._global_objects(kept)}
        live_keys = {(item.id, item.generation) for item, _ in chosen} | {
            (item.id, item.generation) for item in member_listings.values()
        }
        self._kinds = {key: kind for key, kind in self._kinds.items() if key in live_keys}
        self._members = {key: ids for key, ids in self._members.items() if key in live_keys}
        return desired

    def _select_objects(
        self, store: Store, desired: DesiredState
    ) -> tuple[list[tuple[ObjectListing, bool]], dict[ObjectID, ObjectListing]]:
        """The objects to publish, each with whether it is durable, and the members of known collections."""
        member_ids = {oid for ids in self._members.values() for oid in ids}
        chosen: list[tuple[ObjectListing, bool]] = []
        member_listings: dict[ObjectID, ObjectListing] = {}
        durable = _DurabilityCache(store, desired)
        for listing in inventory.everything(store):
            if listing.state not in _STATES or not listing.scope:
                continue
            if listing.id in member_ids:
                member_listings[listing.id] = listing
            if any(name.startswith(INTERNAL_PREFIX) for name in listing.names) or listing.session.startswith(
                INTERNAL_PREFIX
            ):
                continue
            persisted = durable.is_durable(listing)
            if listing.names or persisted:
                chosen.append((listing, persisted))
        return chosen, member_listings

    def _cache_kinds(self, store: Store, chosen: list[tuple[ObjectListing, bool]]) -> None:
        for listing, _ in chosen:
            key = (listing.id, listing.generation)
            if key not in self._kinds:
                kind = inventory.kind_of(store, listing.id)
                if kind is not None:
                    self._kinds[key] = kind

    def _cache_members(self, store: Store, chosen: list[tuple[ObjectListing, bool]]) -> set[ObjectID]:
        """The members of the chosen collections, except those with too many."""
        member_ids: set[ObjectID] = set()
        for listing, _ in chosen:
            key = (listing.id, listing.generation)
            kind = self._kinds.get(key)
            if kind is None or kind.members is None or kind.members > MAX_MEMBERS or listing.state == "lost":
                continue
            if key not in self._members:
                self._members[key] = inventory.members(store, listing.id)
            member_ids.update(self._members[key])
        return member_ids

    def _local_objects(
        self, store: Store, chosen: list[tuple[ObjectListing, bool]], member_listings: dict[ObjectID, ObjectListing]
    ) -> Iterator[LocalObject]:
        # A named member is yielded by both loops: its membership takes precedence, so it comes last.
        for listing, persisted in chosen:
            yield self._local_object(store, listing, persisted)
        for listing, persisted in chosen:
            for index, oid in enumerate(self._members.get((listing.id, listing.generation), ())):
                if oid in member_listings:
                    yield self._local_object(store, member_listings[oid], persisted, (listing.id, index))

    def _local_object(
        self, store: Store, listing: ObjectListing, persisted: bool, member_of: tuple[ObjectID, int] | None = None
    ) -> LocalObject:
        kind = self._kinds.get((listing.id, listing.generation))
        collection = kind is not None and kind.members is not None and member_of is None
        state = _STATES[listing.state]
        return LocalObject(
            object_id=listing.id,
            node=self._identity.node,
            store=self._identity.store,
            lease=self._identity.lease,
            instance=store.instance_id,
            generation=listing.generation,
            bytes=_payload_bytes(listing, kind, collection),
            scope=listing.scope,
            session=listing.session,
            type=kind.type[:MAX_TYPE_LENGTH] if kind is not None else "",
            names=_valid_names(listing),
            persisted=persisted,
            members=kind.members if kind is not None and collection else None,
            member_of=member_of,
            state=state,
            available=_AVAILABILITY[state],
        )

    def _global_objects(self, kept: list[LocalObject]) -> Iterator[GlobalObject]:
        remaining = self._limits.max_members
        for local_object in kept:
            if local_object.members is None:
                continue
            ids = self._members.get((local_object.object_id, local_object.generation), [])
            listed = len(ids) == local_object.members and local_object.members <= min(remaining, MAX_MEMBERS)
            if listed:
                remaining -= local_object.members
            yield GlobalObject(
                object_id=local_object.object_id,
                member_count=local_object.members,
                bytes=local_object.bytes,
                scope=local_object.scope,
                session=local_object.session,
                type=local_object.type,
                names=local_object.names,
                members=tuple(ids) if listed else None,
                complete=_ALL_MEMBERS_LISTED
                if listed
                else _members_omitted(local_object.members, self._limits.max_members),
            )


class _DurabilityCache:
    """Durability of objects by session; each session is queried once per scan."""

    def __init__(self, store: Store, desired: DesiredState) -> None:
        self._store = store
        self._desired = desired
        self._sessions: dict[tuple[str, str], Durable | None] = {}

    def is_durable(self, listing: ObjectListing) -> bool:
        key = (listing.scope, listing.session)
        if key not in self._sessions:
            self._sessions[key] = self._query(*key)
        durable = self._sessions[key]
        return durable is not None and any(durable.covers(name) for name in listing.names or ("",))

    def _query(self, scope: str, session: str) -> Durable | None:
        try:
            return inventory.durability(self._store, scope, session)
        except StoreUnavailable:
            raise
        except EntrepotError as error:
            note = f"{session_phrase(scope, session)} is treated as not durable: {error}"
            if note not in self._desired.notes:
                self._desired.notes.append(note)
            return None


def _payload_bytes(listing: ObjectListing, kind: Kind | None, collection: bool) -> int:
    if kind is not None and collection:
        return kind.nbytes
    return listing.nbytes + (kind.nbytes if kind is not None and kind.members is None else 0)


def _valid_names(listing: ObjectListing) -> tuple[str, ...]:
    fitting = sorted(name for name in listing.names if 0 < len(name) <= MAX_NAME_LENGTH)
    return tuple(fitting[:MAX_NAMES])


def _members_omitted(count: int, max_members: int) -> Condition:
    return Condition(
        COMPLETE,
        False,
        "TooManyMembers",
        f"its {count} members are not listed: the limit is {MAX_MEMBERS} per collection and {max_members} per node",
    )
