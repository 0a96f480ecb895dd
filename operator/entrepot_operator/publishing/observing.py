"""Determines what of a store to publish: named and durable objects, and members of collections among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from entrepot import inventory
from entrepot.errors import EntrepotError, StoreUnavailable
from entrepot.ids import ObjectID
from entrepot_io.cluster.objects import (
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

from entrepot_operator.publishing.bounds import Bounds

if TYPE_CHECKING:
    from entrepot import Store
    from entrepot.durable import Durable
    from entrepot.inventory import Held, Kind

# Prefix of Entrepot's own records: lineage, statistics, declarations. They are read in place, never by a pod.
INTERNAL = "entrepot."
_STATES: dict[str, State] = {
    "sealed": "InMemory",
    "evicting": "InMemory",
    "spilled": "OnDisk",
    "loading": "OnDisk",
    "lost": "Lost",
}
_HERE = {
    "InMemory": Condition(AVAILABLE, True, "InMemory", "the store of the node has it in memory"),
    "OnDisk": Condition(AVAILABLE, True, "OnDisk", "the store of the node brings it back from disk"),
    "Lost": Condition(AVAILABLE, False, "BytesLost", "the store of the node knows it, but its bytes are gone"),
}
_ALL = Condition(COMPLETE, True, "AllMembers", "all members are listed")


@dataclass(frozen=True)
class Origin:
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
class Wanted:
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


class Observer:
    """Scans a store repeatedly, and caches what cannot change.

    Args:
        origin: node and Store whose objects these are.
        bounds: limits on what is published.
    """

    def __init__(self, origin: Origin, bounds: Bounds) -> None:
        self._origin = origin
        self._bounds = bounds
        self._kinds: dict[tuple[ObjectID, int], Kind] = {}
        self._members: dict[tuple[ObjectID, int], list[ObjectID]] = {}

    def look(self, store: Store) -> Wanted:
        """What of the store to publish now.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        wanted = Wanted()
        chosen, parts = self._listed(store, wanted)
        self._note_kinds(store, chosen)
        missing = self._note_members(store, chosen) - parts.keys()
        if missing:
            # A new collection, whose members were skipped: read the list again.
            chosen, parts = self._listed(store, wanted)
            self._note_kinds(store, chosen)
        self._note_kinds(store, [(one, False) for one in parts.values()])
        objects = {one.name: one for one in self._locals(store, chosen, parts)}
        ranked = sorted(objects.values(), key=lambda one: (-one.bytes, one.name))
        kept = [one for one in ranked if one.bytes >= self._bounds.min_bytes][: self._bounds.max_objects]
        wanted.left_out = len(ranked) - len(kept)
        wanted.locals = {one.name: one for one in kept}
        wanted.globals = {one.name: one for one in self._globals(kept)}
        alive = {(one.id, one.generation) for one, _ in chosen} | {(one.id, one.generation) for one in parts.values()}
        self._kinds = {key: kind for key, kind in self._kinds.items() if key in alive}
        self._members = {key: ids for key, ids in self._members.items() if key in alive}
        return wanted

    def _listed(self, store: Store, wanted: Wanted) -> tuple[list[tuple[Held, bool]], dict[ObjectID, Held]]:
        """The objects to publish, each with whether it is durable, and the members of known collections."""
        known_members = {oid for ids in self._members.values() for oid in ids}
        chosen: list[tuple[Held, bool]] = []
        parts: dict[ObjectID, Held] = {}
        durable = _Durability(store, wanted)
        for one in inventory.everything(store):
            if one.state not in _STATES or not one.scope:
                continue
            if one.id in known_members:
                parts[one.id] = one
            if any(name.startswith(INTERNAL) for name in one.names) or one.session.startswith(INTERNAL):
                continue
            persisted = durable.of(one)
            if one.names or persisted:
                chosen.append((one, persisted))
        return chosen, parts

    def _note_kinds(self, store: Store, chosen: list[tuple[Held, bool]]) -> None:
        for one, _ in chosen:
            key = (one.id, one.generation)
            if key not in self._kinds:
                kind = inventory.kind_of(store, one.id)
                if kind is not None:
                    self._kinds[key] = kind

    def _note_members(self, store: Store, chosen: list[tuple[Held, bool]]) -> set[ObjectID]:
        """The members of the chosen collections, except those with too many."""
        found: set[ObjectID] = set()
        for one, _ in chosen:
            key = (one.id, one.generation)
            kind = self._kinds.get(key)
            if kind is None or kind.members is None or kind.members > MAX_MEMBERS or one.state == "lost":
                continue
            if key not in self._members:
                self._members[key] = inventory.members(store, one.id)
            found.update(self._members[key])
        return found

    def _locals(
        self, store: Store, chosen: list[tuple[Held, bool]], parts: dict[ObjectID, Held]
    ) -> Iterator[LocalObject]:
        # A named member is yielded by both loops: its membership takes precedence, so it comes last.
        for one, persisted in chosen:
            yield self._local(store, one, persisted)
        for one, persisted in chosen:
            for index, oid in enumerate(self._members.get((one.id, one.generation), ())):
                if oid in parts:
                    yield self._local(store, parts[oid], persisted, (one.id, index))

    def _local(
        self, store: Store, held: Held, persisted: bool, member_of: tuple[ObjectID, int] | None = None
    ) -> LocalObject:
        kind = self._kinds.get((held.id, held.generation))
        collection = kind is not None and kind.members is not None and member_of is None
        state = _STATES[held.state]
        return LocalObject(
            object_id=held.id,
            node=self._origin.node,
            store=self._origin.store,
            lease=self._origin.lease,
            instance=store.instance_id,
            generation=held.generation,
            bytes=_size(held, kind, collection),
            scope=held.scope,
            session=held.session,
            type=kind.type[:MAX_TYPE_LENGTH] if kind is not None else "",
            names=_names(held),
            persisted=persisted,
            members=kind.members if kind is not None and collection else None,
            member_of=member_of,
            state=state,
            available=_HERE[state],
        )

    def _globals(self, kept: list[LocalObject]) -> Iterator[GlobalObject]:
        room = self._bounds.max_members
        for one in kept:
            if one.members is None:
                continue
            ids = self._members.get((one.object_id, one.generation), [])
            listed = len(ids) == one.members and one.members <= min(room, MAX_MEMBERS)
            if listed:
                room -= one.members
            yield GlobalObject(
                object_id=one.object_id,
                member_count=one.members,
                bytes=one.bytes,
                scope=one.scope,
                session=one.session,
                type=one.type,
                names=one.names,
                members=tuple(ids) if listed else None,
                complete=_ALL if listed else _left_out(one.members, self._bounds.max_members),
            )


class _Durability:
    """Which objects belong to durable sessions; each session is queried once per scan."""

    def __init__(self, store: Store, wanted: Wanted) -> None:
        self._store = store
        self._wanted = wanted
        self._sessions: dict[tuple[str, str], Durable | None] = {}

    def of(self, held: Held) -> bool:
        key = (held.scope, held.session)
        if key not in self._sessions:
            self._sessions[key] = self._ask(*key)
        durable = self._sessions[key]
        return durable is not None and any(durable.covers(name) for name in held.names or ("",))

    def _ask(self, scope: str, session: str) -> Durable | None:
        try:
            return inventory.durability(self._store, scope, session)
        except StoreUnavailable:
            raise
        except EntrepotError as error:
            note = f"session {session!r} of scope {scope!r} counts as not durable: {error}"
            if note not in self._wanted.notes:
                self._wanted.notes.append(note)
            return None


def _size(held: Held, kind: Kind | None, collection: bool) -> int:
    if kind is not None and collection:
        return kind.nbytes
    return held.nbytes + (kind.nbytes if kind is not None and kind.members is None else 0)


def _names(held: Held) -> tuple[str, ...]:
    fitting = sorted(name for name in held.names if 0 < len(name) <= MAX_NAME_LENGTH)
    return tuple(fitting[:MAX_NAMES])


def _left_out(count: int, room: int) -> Condition:
    return Condition(
        COMPLETE,
        False,
        "TooManyMembers",
        f"its {count} members are not listed: at most {MAX_MEMBERS} of one collection are, {room} of a node's together",
    )
