"""Moves objects from this store to others: for ``Store.migrate``, and for draining the store.

An object that is moved goes through this:

    here ──▶ fetched and published there, as the original's place ──▶ deleted here, if it is still the same generation
      └──it does not fit, a name or its ID is taken, the other one fails──▶ stays here; copies made there are withdrawn

If this process ends in between, the object is in both stores, and moving it again ends the same way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from entrepot import inventory, raw_objects
from entrepot.errors import EntrepotError, InvalidArgument, ObjectNotFound, StoreUnavailable
from entrepot.ids import ObjectID
from entrepot.origins import Role, record_id

from entrepot_cluster.gateway.fetcher import find_instance
from entrepot_cluster.transport.endpoints import Wanted

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.directory.model import Instance
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.moving_objects import MovingObjects
    from entrepot_cluster.gateway.object_source import StoreObjects
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.replication import Replication

PULL_AT_ONCE = 1024
DISCARD_SECONDS = 5.0  # for withdrawing what was moved in vain


class Migration:
    """Moves objects away. Thread-safe.

    Args:
        store: a connection to the store, in any session.
        directory: of the cluster.
        peers, source, moving, replication: the gateway's parts.
        own_address: where other gateways reach this one.
    """

    def __init__(
        self,
        store: Store,
        directory: DirectoryAccess,
        peers: Peers,
        source: StoreObjects,
        moving: MovingObjects,
        replication: Replication,
        own_address: str,
    ) -> None:
        self._store = store
        self._directory = directory
        self._peers = peers
        self._source = source
        self._moving = moving
        self._replication = replication
        self._own_address = own_address

    def migrate(self, oid: bytes, to: str, seconds: float) -> None:
        """Move an object, or a collection with its members: all of them, or none.

        What was moved before, by a call that did not end, is not moved again.

        Raises:
            Timeout: the other store has not taken it within this time.
            ObjectNotFound: it is neither here nor there.
            ObjectExists: an ID or a name is taken there.
            StoreFull: it does not fit there.
            VersionMismatch: this store's daemon is too old to delete exactly one generation of an object.
            EntrepotError: anything else that prevents it.
        """
        end = time.monotonic() + seconds
        raw_objects.check_generation_deletes(self._store)
        target = self.target(to)
        object_id = ObjectID(oid)
        kind = inventory.kind_of(self._store, object_id)
        if kind is None:
            if self._peers.get(target).have([Wanted(oid, None)], timeout=_left(end))[0] is None:
                raise ObjectNotFound(f"no object {object_id} is sealed in the store of host {self._store.host}")
            return
        members = inventory.members(self._store, object_id) if kind.members is not None else []
        wanted: list[Wanted] = []
        gone: list[Wanted] = []
        for member_id in [*members, object_id]:  # a collection after its members: it is whole there, or here
            generation = raw_objects.generation_of(self._store, member_id)
            if generation is None:
                gone.append(Wanted(member_id.binary, None))
            else:
                self._source.look_up(member_id)  # with the names that it has now
                wanted.append(Wanted(member_id.binary, generation))
        self._check_moved(gone, target, end)
        with self._moving.moving(item.id for item in wanted):
            self._push_all(wanted, target, end)
            for item in wanted:  # the collection last, so that the members that are left are found when it is repeated
                self._delete(item)

    def move(self, wanted: Sequence[Wanted], target: Instance) -> list[EntrepotError | None]:
        """Move objects, each by itself; return why it stays here, or None.

        Raises:
            VersionMismatch: as for :meth:`migrate`.
        """
        raw_objects.check_generation_deletes(self._store)
        outcomes: list[EntrepotError | None] = []
        with self._moving.moving(item.id for item in wanted):
            for begin in range(0, len(wanted), PULL_AT_ONCE):
                part = wanted[begin : begin + PULL_AT_ONCE]
                try:
                    errors = self._peers.get(target).pull(part, self._own_address, self._store.instance_id)
                except EntrepotError as failure:
                    errors = [failure] * len(part)
                for item, error in zip(part, errors, strict=True):
                    if error is None:
                        self._delete(item)
                outcomes += errors
        return outcomes

    def target(self, to: str) -> Instance:
        """Return the live instance of this host name or ID.

        Raises:
            InvalidArgument: it is this store, or the host has several.
            StoreUnavailable: there is none.
        """
        find_instance(self._directory, lambda each: each.live and to in (each.host, each.id))  # it may just have joined
        instances = self._directory.instances()
        live = [each for each in instances if each.live and to in (each.host, each.id)]
        others = [each for each in live if each.id != self._store.instance_id]
        if len(others) == 1:
            return others[0]
        if others:
            ids = ", ".join(each.id for each in others)
            raise InvalidArgument(f"host {to} has {len(others)} stores in the cluster: say which instance: {ids}")
        if live:
            raise InvalidArgument(f"{to} is this store, where the object is already")
        hosts = ", ".join(sorted({each.host for each in instances if each.live})) or "none"
        raise StoreUnavailable(f"no store of host or instance {to!r} is live in the cluster; there are: {hosts}")

    def _check_moved(self, gone: list[Wanted], target: Instance, end: float) -> None:
        if not gone:
            return
        for item, held in zip(gone, self._peers.get(target).have(gone, timeout=_left(end)), strict=True):
            if held is None:
                raise ObjectNotFound(
                    f"object {item.id.hex()} is not in the store of host {self._store.host} any more, nor on host "
                    f"{target.host}"
                )

    def _push_all(self, wanted: list[Wanted], target: Instance, end: float) -> None:
        """Have the target fetch all of the objects; if one of them fails, it keeps none that it had not before."""
        peer = self._peers.get(target)
        held = [each is not None for each in peer.have(wanted, timeout=_left(end))]
        tried = 0
        try:
            for begin, stop in ((0, len(wanted) - 1), (len(wanted) - 1, len(wanted))):
                for first in range(begin, stop, PULL_AT_ONCE):
                    part = wanted[first : min(first + PULL_AT_ONCE, stop)]
                    tried = first + len(part)
                    errors = peer.pull(part, self._own_address, self._store.instance_id, timeout=_left(end))
                    for error in errors:
                        if error is not None:
                            raise error
        except EntrepotError:
            new = [item for item, before in zip(wanted[:tried], held[:tried], strict=True) if not before]
            if new:
                with suppress(EntrepotError):  # copies that stay there cost memory, nothing else
                    peer.discard_copies(
                        new, self._store.instance_id, Role.PRIMARY, timeout=max(_left(end), DISCARD_SECONDS)
                    )
            raise

    def _delete(self, item: Wanted) -> None:
        """Delete what was moved, with the record of where it came from."""
        oid = ObjectID(item.id)
        with suppress(ObjectNotFound):
            belonging = self._source.look_up(oid)
            record = record_id(belonging.scope, belonging.session, oid)
            record_generation = raw_objects.generation_of(self._store, record)
            assert item.generation is not None
            self._replication.moved(item.id, item.generation)
            deleted = raw_objects.discard_generation(self._store, oid, item.generation)
            if deleted and record_generation is not None:
                raw_objects.discard_generation(self._store, record, record_generation)


def _left(end: float) -> float:
    return max(0.001, end - time.monotonic())
