"""Finds copies that an earlier gateway of this store had sealed, but not recorded, when it was killed.

What there is an intention for, and is in the store:

    found ──▶ unrecorded: neither published nor sent ──its source has the same bytes──▶ recorded as a copy
                  │                                  └──its source has others──▶ an object of its own: published
                  ├──the source cannot be reached, or has not got it; others have the ID──▶ asked again, more rarely
                  └──no other live store has the ID──▶ an object of its own

Only its bytes can say: somebody on this host may have put an object of the same ID at the same moment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from entrepot import inventory, raw_objects
from entrepot.errors import EntrepotError, ObjectExists, ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.origins import INTENDED, INTENDED_ALIAS, Origin, Role, origin_of, record_id, record_of, recorded_copy

from entrepot_cluster.gateway.object_sink import StoreSink
from entrepot_cluster.gateway.receiving import receive
from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies
from entrepot_cluster.transport.endpoints import Wanted

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.directory.model import Instance
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.session_stores import SessionStores

RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A copy that may have been sealed without its record.

    Attributes:
        oid, generation: what is in the store.
        place: its scope and session.
        intention: what the earlier gateway was about to seal.
    """

    oid: ObjectID
    generation: int
    place: tuple[str, str]
    intention: Origin


class InterruptedCopies:
    """Settles them, from a thread of its own that ends when there are none left.

    Args:
        store: a connection to the store, in any session.
        sessions: connections to the store's sessions.
        directory, peers: the gateway's parts.
        unrecorded: is told which objects must not be published before it is known what they are.
    """

    def __init__(
        self,
        store: Store,
        sessions: SessionStores,
        directory: DirectoryAccess,
        peers: Peers,
        unrecorded: UnrecordedCopies,
    ) -> None:
        self._store = store
        self._own = store.instance_id
        self._sessions = sessions
        self._directory = directory
        self._peers = peers
        self._unrecorded = unrecorded
        self._stopping = threading.Event()
        self._left: list[Interrupted] = []  # of the thread, once it is started
        self._thread = threading.Thread(target=self._run, name="interrupted copies", daemon=True)

    def start(self) -> None:
        """Find them, and start the thread if there are any.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        self._left = list(self._find())
        if self._left:
            self._unrecorded.hold(each.oid.binary for each in self._left)
            _log.info("%d copies may have been sealed when a gateway was killed, and are compared", len(self._left))
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()

    def _find(self) -> Iterator[Interrupted]:
        for listing in inventory.everything(self._store):
            if listing.nbytes:
                continue
            place = (listing.scope, listing.session)
            record = recorded_copy(self._store, listing.id, place)
            if record is not None and record[1].generation in (INTENDED, INTENDED_ALIAS):
                oid, intention = record
                generation = raw_objects.generation_of(self._store, oid)
                if generation is not None:
                    yield Interrupted(oid, generation, place, intention)

    def _run(self) -> None:
        seconds = RETRY_SECONDS
        while self._left:
            waiting: list[Interrupted] = []
            for each in self._left:
                if self._stopping.is_set():
                    return
                try:
                    is_settled = self._settle(each)
                except EntrepotError as error:
                    _log.info("whether object %s is a copy is not known yet: %s", each.oid, error)
                    is_settled = False
                except Exception:
                    _log.exception("whether object %s is a copy could not be found out; tried again", each.oid)
                    is_settled = False
                if is_settled:
                    self._unrecorded.release([each.oid.binary])
                else:
                    waiting.append(each)
            self._left = waiting
            if waiting and self._stopping.wait(seconds):
                return
            seconds = min(2 * seconds, MAX_RETRY_SECONDS)

    def _settle(self, each: Interrupted) -> bool:
        """Find out what one of them is; False: that is not known yet."""
        store = self._sessions.get(*each.place)
        if raw_objects.generation_of(store, each.oid) != each.generation:
            return True  # deleted or replaced; its intention is deleted like a record that is stale
        if each.intention.generation == INTENDED_ALIAS:
            return self._record(store, each)
        for wanted, instance in self._sources(each):
            sink = StoreSink(self._sessions, UnrecordedCopies(), role=Role.REPLICA)
            (error,) = receive(self._peers.get(instance), [wanted], sink)
            if error is None:  # the same bytes: the sink has recorded it
                return self._record(store, each)
            if isinstance(error, ObjectExists):
                break
            if not isinstance(error, (ObjectNotFound, ObjectLost)):
                raise error
        else:
            if self._is_elsewhere(each.oid.binary):
                return False  # published as an object of its own, an old copy would count as the newest
        origin = origin_of(store, each.oid)
        if origin is not None and origin.generation == INTENDED:
            raw_objects.discard(store, record_id(*each.place, each.oid))
        return True

    def _is_elsewhere(self, oid: bytes) -> bool:
        places = self._directory.get().places([oid])[0].entries
        return any(p.instance.id != self._own and self._directory.may_be_live(p.instance) for p in places)

    def _record(self, store: Store, each: Interrupted) -> bool:
        origin = replace(each.intention, generation=each.generation)
        if origin.role == Role.PRIMARY:  # whoever moved it here was not told that it is here, and keeps it
            origin = replace(origin, role=Role.READ)
        raw_objects.put_small(store, [record_of(store, each.oid, origin)], replace=True)
        return True

    def _sources(self, each: Interrupted) -> list[tuple[Wanted, Instance]]:
        """Live stores that have the life, as far as is known."""
        oid, lives = each.oid.binary, each.intention.lives
        instances = {instance.id: instance for instance in self._directory.instances()}
        sources = {
            life.instance: (Wanted(oid, life.generation), instances[life.instance])
            for life in lives
            if life.instance in instances
        }
        for place in self._directory.get().places([oid])[0].entries:
            if place.life in lives:
                sources.setdefault(place.instance.id, (Wanted(oid, place.generation), place.instance))
        return [
            source
            for source in sources.values()
            if source[1].id != self._own and self._directory.may_be_live(source[1])
        ]
