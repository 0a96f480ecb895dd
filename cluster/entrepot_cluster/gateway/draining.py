"""Moves what only this store has to other hosts, a batch at a time; ``entrepot drain`` says what, and when to stop.

An object of a batch:

    is a copy, and a live store has the original ──▶ left: it is not needed here
    anything else ──▶ moved to a host that has a copy, or else to one after the other ──one of them has it──▶ moved
                                                            └──none takes it──▶ kept, with the reason
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from entrepot import raw_objects
from entrepot.errors import EntrepotError, ObjectNotFound, StoreUnavailable, Timeout
from entrepot.ids import ObjectID

from entrepot_cluster.gateway.replica_plan import targets_for
from entrepot_cluster.transport.endpoints import Wanted

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.directory.model import Instance, Place
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.migration import Migration
    from entrepot_cluster.gateway.moving_objects import MovingObjects
    from entrepot_cluster.gateway.object_source import StoreObjects
    from entrepot_cluster.gateway.peers import Peers

MOVED, LEFT, GONE, KEPT = "moved", "left", "gone", "kept"


class Outcome(NamedTuple):
    """What became of an object: MOVED, LEFT, GONE (before it could be moved) or KEPT; and where to, or why."""

    what: str
    detail: str = ""


class Draining:
    """Drains the store. Thread-safe.

    Args:
        store: a connection to the store, in any session.
        directory: of the cluster.
        peers, source, moving, migration: the gateway's parts.
    """

    def __init__(
        self,
        store: Store,
        directory: DirectoryAccess,
        peers: Peers,
        source: StoreObjects,
        moving: MovingObjects,
        migration: Migration,
    ) -> None:
        self._store = store
        self._directory = directory
        self._peers = peers
        self._source = source
        self._moving = moving
        self._migration = migration

    def drain(self, oids: Sequence[bytes], to: str) -> list[Outcome]:
        """Move a batch of objects away. While this is called again and again, nothing is moved or copied to this store.

        Args:
            oids: at most 1000 of them.
            to: host or instance; empty: any other host.

        Raises:
            DirectoryUnavailable: the directory cannot be asked.
            InvalidArgument, StoreUnavailable: there is no such host, or it has several stores.
            VersionMismatch: this store's daemon is too old for it.
        """
        with self._moving.draining():
            raw_objects.check_generation_deletes(self._store)
            only = self._migration.target(to) if to else None
            outcomes: dict[bytes, Outcome] = {}
            waiting: dict[bytes, tuple[Wanted, list[Instance]]] = {}
            published = self._directory.get().places(oids)
            for oid, places in zip(oids, published, strict=True):
                try:
                    item = self._to_move(oid, places.entries)
                except ObjectNotFound:
                    outcomes[oid] = Outcome(GONE)
                    continue
                if item is None:
                    outcomes[oid] = Outcome(LEFT)
                else:
                    waiting[oid] = item, [only] if only is not None else self._targets(oid, places.entries)
            self._move(waiting, outcomes)
        return [outcomes[oid] for oid in oids]

    def _to_move(self, oid: bytes, places: list[Place]) -> Wanted | None:
        """The object as it is here; None: it is a copy of what another live store has."""
        object_id = ObjectID(oid)
        belonging = self._source.look_up(object_id)
        generation = raw_objects.generation_of(self._store, object_id)
        if generation is None:
            raise ObjectNotFound(f"object {object_id} was deleted")
        origin = self._source.origin(object_id, generation, belonging.scope, belonging.session)
        if origin is not None and not belonging.names:
            for place in places:
                is_original = place.life in origin.lives and (place.origin is None or place.is_primary)
                if is_original and place.instance.live and self._holds(place):
                    return None
        return Wanted(oid, generation)

    def _holds(self, place: Place) -> bool:
        """Ask the other store itself: what the directory says may be a moment old."""
        if place.instance.id == self._store.instance_id:
            return False
        try:
            return self._peers.get(place.instance).have([Wanted(place.oid, place.generation)])[0] is not None
        except EntrepotError:
            return False

    def _targets(self, oid: bytes, places: list[Place]) -> list[Instance]:
        """Stores to move an object to: those that have a copy first, since nothing has to be sent to them."""
        own = self._store.instance_id
        have = {place.instance.id for place in places}
        instances = self._directory.instances()
        here = [each for each in instances if each.id == own]
        others = targets_for(oid, here, instances, lambda instance: instance.id != own)
        return sorted(others, key=lambda instance: instance.id not in have)

    def _move(self, waiting: dict[bytes, tuple[Wanted, list[Instance]]], outcomes: dict[bytes, Outcome]) -> None:
        reasons: dict[bytes, list[str]] = defaultdict(list)
        unreachable: set[str] = set()
        while waiting:
            by_target: dict[str, tuple[Instance, list[Wanted]]] = {}
            for oid, (item, targets) in list(waiting.items()):
                while targets and targets[0].id in unreachable:
                    targets.pop(0)
                if not targets:
                    del waiting[oid]
                    why = "; ".join(dict.fromkeys(reasons[oid])) or "no other host is live in the cluster"
                    outcomes[oid] = Outcome(KEPT, why)
                    continue
                target = targets.pop(0)
                by_target.setdefault(target.id, (target, []))[1].append(item)
            for target, items in by_target.values():
                try:
                    errors = self._migration.move(items, target)
                except EntrepotError as failure:
                    errors = [failure] * len(items)
                if all(isinstance(error, (StoreUnavailable, Timeout)) for error in errors):
                    unreachable.add(target.id)
                for item, error in zip(items, errors, strict=True):
                    if error is None:
                        outcomes[item.id] = Outcome(MOVED, target.host)
                        del waiting[item.id]
                    else:
                        reasons[item.id].append(f"host {target.host}: {error}")
