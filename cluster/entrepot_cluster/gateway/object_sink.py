"""The store, as the gateway fetches objects into it.

small ──put()──▶ sealed, and its origin recorded
large ──allocate()──▶ allocated ──commit()──▶ sealed, and its origin recorded
                          └──dropped: the memory goes back
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import EntrepotError, ObjectExists, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.origins import Life, Origin, alias, copy_of, record_of

from entrepot_cluster.gateway.envelope import Envelope
from entrepot_cluster.transport.endpoints import ObjectHeader, Reception
from entrepot_cluster.transport.store_endpoints import WAIT_SECONDS, LeasedReception

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.gateway.session_stores import SessionStores
    from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies


@dataclass(frozen=True, slots=True)
class Incoming:
    """An object that is to be sealed here.

    Attributes:
        oid: the ID that it has where it comes from.
        target: the ID under which it is going to be sealed.
        store: the session that it belongs to.
        envelope: what came with it.
    """

    oid: ObjectID
    target: ObjectID
    store: Store
    envelope: Envelope


class IncomingReception(LeasedReception):
    """Leased memory for an object that is to be sealed here.

    Attributes:
        incoming: the object.
    """

    __slots__ = ("incoming",)

    def __init__(self, incoming: Incoming, header: ObjectHeader) -> None:
        writer = raw_objects.RawObjectWriter(incoming.store, header.lengths, wait_seconds=WAIT_SECONDS)
        super().__init__(header, writer)
        self.incoming = incoming


class StoreSink:
    """Receives objects into a store, each in the session that it comes from. For one fetch; thread-safe.

    Args:
        sessions: connections to the store's sessions.
        unrecorded: is told which copies are being made.
        lives: by ID, fetch exactly this life, under another ID if its own holds other content here. Of those without
            one, an object that is here meanwhile, whichever, is as good.
        moves: an object gets the names that it has where it comes from, as far as they are free here; one whose ID
            holds anything but a copy of it here is refused with ObjectExists.
        arrived: called with the ID of each object that is here now, and the ID that it has here.

    Attributes:
        targets: IDs under which objects are here now, by their own; filled as they arrive.
    """

    def __init__(
        self,
        sessions: SessionStores,
        unrecorded: UnrecordedCopies,
        *,
        lives: Mapping[bytes, Life] | None = None,
        moves: bool = False,
        arrived: Callable[[bytes, ObjectID], None] | None = None,
    ) -> None:
        self._sessions = sessions
        self._unrecorded = unrecorded
        self._lives = lives or {}
        self._moves = moves
        self._arrived = arrived
        self.targets: dict[bytes, ObjectID] = {}  # each key is set by one thread

    # --- small objects

    def put(self, objects: Sequence[tuple[ObjectHeader, Sequence[memoryview]]]) -> list[bool | EntrepotError]:
        """Seal small objects; see :class:`~entrepot_cluster.transport.endpoints.ObjectSink`."""
        outcomes: list[bool | EntrepotError] = [False] * len(objects)
        by_session: dict[int, list[tuple[int, Incoming, Sequence[memoryview]]]] = defaultdict(list)
        for index, (header, buffers) in enumerate(objects):
            try:
                incoming = self._plan(header)
            except EntrepotError as failure:
                outcomes[index] = failure
                continue
            if incoming is None:
                outcomes[index] = True
            else:
                by_session[id(incoming.store)].append((index, incoming, buffers))
        for of_session in by_session.values():
            with self._unrecorded.sealing(incoming.target.binary for _, incoming, _ in of_session):
                self._put(of_session, outcomes)
        return outcomes

    def _put(
        self, part: list[tuple[int, Incoming, Sequence[memoryview]]], outcomes: list[bool | EntrepotError]
    ) -> None:
        store = part[0][1].store
        objects = [
            raw_objects.SmallObject(incoming.target, incoming.envelope.tree, buffers) for _, incoming, buffers in part
        ]
        try:
            results = raw_objects.put_small(store, objects, wait_seconds=WAIT_SECONDS)
        except EntrepotError as failure:
            if len(part) > 1:  # one by one, to know which of them it was
                for item in part:
                    self._put([item], outcomes)
            else:
                outcomes[part[0][0]] = self._refused(part[0][1], failure) or True
            return
        error = self._record(
            [(incoming, result.generation) for (_, incoming, _), result in zip(part, results, strict=True)]
        )
        for (index, _, _), result in zip(part, results, strict=True):
            outcomes[index] = error or result.existed

    # --- large ones

    def allocate(self, header: ObjectHeader) -> IncomingReception | None:
        """Provide memory; see :class:`~entrepot_cluster.transport.endpoints.ObjectSink`."""
        incoming = self._plan(header)
        return None if incoming is None else IncomingReception(incoming, header)

    def commit(self, reception: Reception) -> EntrepotError | None:
        """Seal a large object; see :class:`~entrepot_cluster.transport.endpoints.ObjectSink`."""
        assert isinstance(reception, IncomingReception)
        incoming = reception.incoming
        with self._unrecorded.sealing([incoming.target.binary]):
            try:
                generation = reception.writer.seal(incoming.target, incoming.envelope.tree).generation
            except EntrepotError as error:
                reception.drop()
                return self._refused(incoming, error)
            return self._record([(incoming, generation)])

    # --- both

    def _plan(self, header: ObjectHeader) -> Incoming | None:
        """Decide under which ID an object is sealed; None: it is here already."""
        envelope = Envelope.unpack(header.tree)
        oid = ObjectID(header.id)
        life = self._lives.get(header.id)
        if life is not None and life not in envelope.lives:
            raise ObjectNotFound(
                f"what was sent under the ID {oid} is not generation {life.generation} of instance {life.instance}, "
                "nor a copy of that"
            )
        store = self._sessions.get(envelope.scope, envelope.session)
        target = oid
        if raw_objects.generation_of(store, oid) is not None:
            local_id: ObjectID | None = oid
            self._unrecorded.wait(header.id)  # another fetch may have sealed it just now
            if self._moves:
                self._check_copy(store, oid, envelope)
                self._bind(store, oid, envelope)
            elif life is not None:
                local_id = copy_of(store, oid, life)
                target = alias(oid, life, (envelope.scope, envelope.session))
            if local_id is not None:
                self._note(header.id, local_id)
                return None
        return Incoming(oid, target, store, envelope)

    def _refused(self, incoming: Incoming, error: EntrepotError) -> EntrepotError | None:
        """What an error of a seal means. Other content that was sealed under the ID since is as good, or is not."""
        if not isinstance(error, ObjectExists) or incoming.oid.binary in self._lives or self._moves:
            return error
        self._note(incoming.oid.binary, incoming.oid)
        return None

    def _note(self, oid: bytes, target: ObjectID) -> None:
        self.targets[oid] = target
        if self._arrived is not None:
            self._arrived(oid, target)

    def _record(self, sealed: list[tuple[Incoming, int]]) -> EntrepotError | None:
        """Record the origins of objects of one session. Without that, a reference would not find them."""
        store = sealed[0][0].store
        records = [
            record_of(store, incoming.target, Origin(generation, incoming.envelope.lives))
            for incoming, generation in sealed
        ]
        try:
            raw_objects.put_small(store, records, replace=True, wait_seconds=WAIT_SECONDS)
        except EntrepotError as error:
            for incoming, _ in sealed:
                raw_objects.discard(store, incoming.target)
            return error
        for incoming, _ in sealed:
            if self._moves:
                self._bind(store, incoming.target, incoming.envelope)
            self._note(incoming.oid.binary, incoming.target)
        return None

    @staticmethod
    def _check_copy(store: Store, oid: ObjectID, envelope: Envelope) -> None:
        own = Life(store.instance_id, raw_objects.generation_of(store, oid) or 0)
        if own not in envelope.lives and all(copy_of(store, oid, life) != oid for life in envelope.lives):
            raise ObjectExists(
                f"object {oid} exists in the store of host {store.host}, to which it is to be moved, and may be "
                "another one: delete one of the two"
            )

    @staticmethod
    def _bind(store: Store, oid: ObjectID, envelope: Envelope) -> None:
        for name in envelope.names:
            with suppress(ObjectExists):  # bound to something else here
                store.set_name(name, oid)
