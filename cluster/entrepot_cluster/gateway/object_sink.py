"""The store, as the gateway fetches objects into it.

small ──put()──▶ intended ──▶ sealed ──▶ its origin recorded
large ──allocate()──▶ allocated ──commit()──▶ intended ──▶ sealed ──▶ its origin recorded
                          └──dropped: the memory goes back

The record of an origin names the generation, so it can only be written after the seal. The intention is written before:
if the gateway is killed between the two, the next one knows what was sealed (``interrupted_copies``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from entrepot import raw_objects
from entrepot.errors import EntrepotError, ObjectExists, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.origins import (
    INTENDED,
    INTENDED_ALIAS,
    Life,
    Origin,
    Role,
    alias,
    copy_of,
    intention_of,
    origin_of,
    record_of,
)

from entrepot_cluster.gateway.envelope import Envelope
from entrepot_cluster.transport.endpoints import ObjectHeader, Reception
from entrepot_cluster.transport.store_endpoints import WAIT_SECONDS, LeasedReception

if TYPE_CHECKING:
    from entrepot import PutResult, Store

    from entrepot_cluster.gateway.session_stores import SessionStores
    from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies


class Incoming(NamedTuple):
    """An object that is to be sealed here.

    Attributes:
        oid: the ID that it has where it comes from.
        target: the ID under which it is going to be sealed.
        store: the session that it belongs to.
        envelope: what came with it.
        is_new: whether nothing had the target's ID here a moment ago.
    """

    oid: ObjectID
    target: ObjectID
    store: Store
    envelope: Envelope
    is_new: bool = False


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
        role: why the objects are fetched. Unless a reader asked for it, one whose ID holds anything but a copy of it
            here is refused with ObjectExists, and its session lives here at least as long as where it comes from. One
            that is moved here (PRIMARY) gets the names that it has there, and is refused if one of them is taken.
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
        role: Role = Role.READ,
        arrived: Callable[[bytes, ObjectID], None] | None = None,
    ) -> None:
        self._sessions = sessions
        self._unrecorded = unrecorded
        self._lives = lives or {}
        self._role = role
        self._arrived = arrived
        self.targets: dict[bytes, ObjectID] = {}  # each key is set by one thread

    # --- small objects

    def put(self, objects: Sequence[tuple[ObjectHeader, Sequence[memoryview]]]) -> list[bool | EntrepotError]:
        """Seal small objects; see :class:`~entrepot_cluster.transport.endpoints.ObjectSink`."""
        outcomes: list[bool | EntrepotError] = [False] * len(objects)
        by_session: dict[int, list[tuple[int, Incoming, Sequence[memoryview]]]] = defaultdict(list)
        for index, (plan, (_, buffers)) in enumerate(zip(self._plan_all(objects), objects, strict=True)):
            if plan is None or isinstance(plan, EntrepotError):
                outcomes[index] = plan or True
            else:
                by_session[id(plan.store)].append((index, plan, buffers))
        for of_session in by_session.values():
            with self._unrecorded.sealing(incoming.target.binary for _, incoming, _ in of_session):
                self._put(of_session, outcomes)
        return outcomes

    def _put(
        self, part: list[tuple[int, Incoming, Sequence[memoryview]]], outcomes: list[bool | EntrepotError]
    ) -> None:
        store = part[0][1].store
        intentions = self._intentions([incoming for _, incoming, _ in part])
        objects = [
            raw_objects.SmallObject(incoming.target, incoming.envelope.tree, buffers) for _, incoming, buffers in part
        ]
        try:
            sealed = raw_objects.put_small(store, [*intentions, *objects], wait_seconds=WAIT_SECONDS)
            results = sealed[len(intentions) :]
        except EntrepotError as failure:
            if len(part) > 1:  # one by one, to know which of them it was
                for index, incoming, buffers in part:
                    self._put([(index, incoming._replace(is_new=False), buffers)], outcomes)
            else:
                outcomes[part[0][0]] = self._refused(part[0][1], failure) or True
            return
        error = self._record([(incoming, result) for (_, incoming, _), result in zip(part, results, strict=True)])
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
                intentions = self._intentions([incoming])
                raw_objects.put_small(incoming.store, intentions, wait_seconds=WAIT_SECONDS)
                result = reception.writer.seal(incoming.target, incoming.envelope.tree)
            except EntrepotError as error:
                reception.drop()
                return self._refused(incoming, error)
            return self._record([(incoming, result)])

    # --- both

    def _plan_all(
        self, objects: Sequence[tuple[ObjectHeader, Sequence[memoryview]]]
    ) -> list[Incoming | EntrepotError | None]:
        """Decide about several objects, as :meth:`_plan`, or say why they are refused.

        Most of those that are read are not here: the daemon is asked about all of them at once.
        """
        plans: list[Incoming | EntrepotError | None] = []
        here: list[int | None] = [0] * len(objects)
        stores: dict[tuple[str, str], Store] = {}
        try:
            if self._role == Role.READ:
                first = self._checked(objects[0][0])
                store = stores[first.scope, first.session] = self._sessions.get(first.scope, first.session)
                here = raw_objects.generations_of(store, [ObjectID(header.id) for header, _ in objects])
        except EntrepotError:
            pass  # whichever it is about says so itself
        for (header, _), generation in zip(objects, here, strict=True):
            try:
                if generation is not None:
                    plans.append(self._plan(header))
                    continue
                envelope = self._checked(header)
                place = (envelope.scope, envelope.session)
                if place not in stores:
                    stores[place] = self._sessions.get(*place)
                oid = ObjectID(header.id)
                plans.append(Incoming(oid, oid, stores[place], envelope, is_new=True))
            except EntrepotError as error:
                plans.append(error)
        return plans

    def _checked(self, header: ObjectHeader) -> Envelope:
        """What came with an object, which is the life that was asked for.

        Raises:
            ObjectNotFound: it is another one.
            CorruptData: it cannot be read.
        """
        envelope = Envelope.unpack(header.tree)
        life = self._lives.get(header.id)
        if life is not None and life not in envelope.lives:
            raise ObjectNotFound(
                f"what was sent under the ID {header.id.hex()} is not generation {life.generation} of instance "
                f"{life.instance}, nor a copy of that"
            )
        return envelope

    def _plan(self, header: ObjectHeader) -> Incoming | None:
        """Decide under which ID an object is sealed; None: it is here already."""
        envelope = self._checked(header)
        oid = ObjectID(header.id)
        life = self._lives.get(header.id)
        if self._role != Role.READ:
            self._sessions.lengthen(envelope.scope, envelope.session, envelope.ttl_seconds)
        store = self._sessions.get(envelope.scope, envelope.session)
        target = oid
        if self._role == Role.PRIMARY:
            self._check_names(store, oid, envelope)
        if raw_objects.generation_of(store, oid) is not None:
            local_id: ObjectID | None = oid
            self._unrecorded.wait(header.id)  # another fetch may have sealed it just now
            if self._role != Role.READ:
                if not self._is_copy(store, oid, envelope):  # or has no record yet: only its bytes say
                    return Incoming(oid, target, store, envelope)
                if self._role == Role.PRIMARY:
                    self._take_over(store, oid, envelope)
            elif life is not None:
                local_id = copy_of(store, oid, life)
                target = alias(oid, life, (envelope.scope, envelope.session))
            if local_id is not None:
                self._note(header.id, local_id)
                return None
        return Incoming(oid, target, store, envelope)

    def _refused(self, incoming: Incoming, error: EntrepotError) -> EntrepotError | None:
        """What an error of a seal means. Other content that was sealed under the ID since is as good, or is not."""
        if not isinstance(error, ObjectExists) or incoming.oid.binary in self._lives:
            return error
        if self._role != Role.READ:
            return ObjectExists(
                f"another object {incoming.target} exists in the store of host {incoming.store.host}: delete one of "
                "the two"
            )
        self._note(incoming.oid.binary, incoming.oid)
        return None

    def _note(self, oid: bytes, target: ObjectID) -> None:
        self.targets[oid] = target
        if self._arrived is not None:
            self._arrived(oid, target)

    def _intentions(self, incoming: Sequence[Incoming]) -> list[raw_objects.SmallObject]:
        """Records that say what is about to be sealed; none for what is here, which has a record if it is a copy."""
        intentions: list[raw_objects.SmallObject] = []
        unsure = [each.target for each in incoming if not each.is_new]
        here = raw_objects.generations_of(incoming[0].store, unsure) if unsure else []
        present = {target for target, generation in zip(unsure, here, strict=True) if generation is not None}
        for each in incoming:
            if each.target not in present:
                generation = INTENDED if each.target == each.oid else INTENDED_ALIAS
                origin = Origin(generation, each.envelope.lives, self._role, each.envelope.replicas)
                intentions.append(intention_of(each.store, each.target, origin))
        return intentions

    def _record(self, sealed: list[tuple[Incoming, PutResult]]) -> EntrepotError | None:
        """Record the origins of objects of one session. Without that, a reference would not find them."""
        store = sealed[0][0].store
        records = [
            record_of(store, incoming.target, self._origin(incoming.envelope, result)) for incoming, result in sealed
        ]
        try:
            raw_objects.put_small(store, records, replace=True, wait_seconds=WAIT_SECONDS)
        except EntrepotError as error:
            for incoming, result in sealed:
                if not result.existed:
                    raw_objects.discard(store, incoming.target)
            return error
        for incoming, result in sealed:
            if self._role == Role.PRIMARY:
                try:
                    self._bind(store, incoming.target, incoming.envelope)
                except EntrepotError as error:  # the name was taken just now
                    if not result.existed:
                        raw_objects.discard_generation(store, incoming.target, result.generation)
                    return error
            self._note(incoming.oid.binary, incoming.target)
        return None

    def _origin(self, envelope: Envelope, result: PutResult) -> Origin:
        """What is recorded. The same bytes, if they were here before, are not deleted with the original."""
        role = Role.READ if result.existed and self._role == Role.REPLICA else self._role
        return Origin(result.generation, envelope.lives, role, envelope.replicas)

    @staticmethod
    def _is_copy(store: Store, oid: ObjectID, envelope: Envelope) -> bool:
        """Whether the object that is here is known to be a copy of the one that arrives, or its original."""
        own = Life(store.instance_id, raw_objects.generation_of(store, oid) or 0)
        return own in envelope.lives or any(copy_of(store, oid, life) == oid for life in envelope.lives)

    @staticmethod
    def _check_names(store: Store, oid: ObjectID, envelope: Envelope) -> None:
        for name in envelope.names:
            try:
                bound = store.resolve(name, remote=False)
            except ObjectNotFound:
                continue
            if bound != oid:
                raise ObjectExists(
                    f"object {oid} cannot be moved to host {store.host}: its name {name!r} is bound to object {bound} "
                    f"there, in session {store.session_name!r}; remove one of the two names"
                )

    def _take_over(self, store: Store, oid: ObjectID, envelope: Envelope) -> None:
        """Let a copy that is here take the place of the original."""
        self._bind(store, oid, envelope)
        origin = origin_of(store, oid)
        if origin is not None and origin.generation == raw_objects.generation_of(store, oid):
            primary = Origin(origin.generation, origin.lives, Role.PRIMARY, envelope.replicas)
            raw_objects.put_small(store, [record_of(store, oid, primary)], replace=True, wait_seconds=WAIT_SECONDS)

    @staticmethod
    def _bind(store: Store, oid: ObjectID, envelope: Envelope) -> None:
        for name in envelope.names:
            store.set_name(name, oid)
