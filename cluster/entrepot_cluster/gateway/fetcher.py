"""Fetches objects from other stores of the cluster into this one.

An object that is wanted goes through this, by itself:

    asked for ──somebody else fetches it──▶ waits for that
        └──▶ looked up in the directory ──no place──▶ ObjectNotFound
                 └──at lost instances only──▶ ObjectLost
                 └──▶ fetched from one place after the other ──▶ sealed here
                                              └──none has it, or can be reached──▶ ObjectLost
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from entrepot.errors import (
    DirectoryUnavailable,
    EntrepotError,
    ObjectLost,
    ObjectNotFound,
    StoreFull,
    StoreUnavailable,
    Timeout,
)
from entrepot.ids import ObjectID
from entrepot.origins import Life, Role

from entrepot_cluster.directory.directory import VIEW_SECONDS
from entrepot_cluster.directory.model import Instance, Place
from entrepot_cluster.gateway.object_sink import StoreSink
from entrepot_cluster.gateway.pending_fetch import Outcome, PendingFetch
from entrepot_cluster.gateway.receiving import receive
from entrepot_cluster.transport.endpoints import Wanted

if TYPE_CHECKING:
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.session_stores import SessionStores
    from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies
    from entrepot_cluster.transport.peer import PeerConnections

LOOKUP_IDS = 1024  # in one question to the directory
JOIN_SECONDS = VIEW_SECONDS + 0.5
_PEERS_AT_ONCE = 8
ANY_GENERATION = 0  # of a place

_ELSEWHERE = (ObjectLost, ObjectNotFound)  # errors of a place that say nothing about others


@dataclass(slots=True)
class _Candidate:
    """An object that is to be fetched: the places that are left to try, what happened so far, and why it failed."""

    oid: bytes
    places: list[Place]
    errors: list[EntrepotError] = field(default_factory=list)
    failure: EntrepotError | None = None


def find_instance(directory: DirectoryAccess, is_wanted: Callable[[Instance], bool]) -> Instance | None:
    """Return an instance that the directory knows, a live one if there is one.

    What the directory says may be a second old, so an instance that is not known is looked for again for that long.
    """
    end = time.monotonic() + JOIN_SECONDS
    while True:
        wanted = [each for each in directory.instances() if is_wanted(each)]
        if wanted:
            return max(wanted, key=lambda each: each.live)
        if time.monotonic() > end:
            return None
        time.sleep(JOIN_SECONDS / 10)


def find_instances(directory: DirectoryAccess, ids: Set[str]) -> dict[str, Instance]:
    """Return those of these instances that the directory knows; it waits for unknown ones as :func:`find_instance`."""
    end = time.monotonic() + JOIN_SECONDS
    while True:
        instances = {each.id: each for each in directory.instances() if each.id in ids}
        if len(instances) == len(ids) or time.monotonic() > end:
            return instances
        time.sleep(JOIN_SECONDS / 10)


class Fetcher:
    """Fetches objects; concurrent requests for the same one are one fetch. Thread-safe.

    Args:
        own_instance: this store.
        directory: of the cluster.
        peers: connections to other gateways.
        sessions: connections to this store's sessions.
        unrecorded: is told which copies are being made.
    """

    def __init__(
        self,
        own_instance: str,
        directory: DirectoryAccess,
        peers: Peers,
        sessions: SessionStores,
        unrecorded: UnrecordedCopies,
    ) -> None:
        self._own_instance = own_instance
        self._directory = directory
        self._peers = peers
        self._sessions = sessions
        self._unrecorded = unrecorded
        self._lock = threading.Lock()
        self._ended = threading.Condition()
        self._running: dict[bytes, PendingFetch] = {}  # fetches by ID; guarded by _lock
        self._pool = ThreadPoolExecutor(_PEERS_AT_ONCE, thread_name_prefix="fetch")

    def close(self) -> None:
        """Start no further transfers."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # --- by ID alone: what was published last

    def fetch(self, oids: Sequence[bytes]) -> list[EntrepotError | None]:
        """Fetch objects, each from wherever the last publication of its ID says.

        Returns:
            for each ID why it could not be fetched; None: it is here.
        """
        mine: dict[bytes, PendingFetch] = {}
        waits: dict[bytes, PendingFetch] = {}
        with self._lock:
            for oid in dict.fromkeys(oids):
                running = self._running.get(oid)
                if running is None:
                    mine[oid] = self._running[oid] = PendingFetch(self._ended)
                else:
                    waits[oid] = running
        try:
            if mine:
                self._fetch_published(mine)
        finally:
            with self._lock:
                for oid in mine:
                    del self._running[oid]
            for oid, future in mine.items():
                if not future.done():  # an error of this module
                    future.set_result(EntrepotError(f"the fetch of object {oid.hex()} failed; see the gateway's log"))
        outcomes = {oid: future.result() for oid, future in (*mine.items(), *waits.items())}
        return [outcome if isinstance(outcome := outcomes[oid], EntrepotError) else None for oid in oids]

    def _fetch_published(self, mine: dict[bytes, PendingFetch]) -> None:
        candidates: list[_Candidate] = []
        ids = list(mine)
        for begin in range(0, len(ids), LOOKUP_IDS):
            part = ids[begin : begin + LOOKUP_IDS]
            try:
                published = self._directory.get().places(part)
            except EntrepotError as error:
                for oid in part:
                    mine[oid].set_result(error)
                continue
            for oid, places in zip(part, published, strict=True):
                try:
                    candidates.append(_Candidate(oid, self._newest_life(oid, places.entries)))
                except EntrepotError as error:
                    mine[oid].set_result(places.damage or error)
        self._fail(self._try_places(candidates, mine), mine)

    def _newest_life(self, oid: bytes, places: list[Place]) -> list[Place]:
        """The places of the life that was published last: what an ID without an instance means."""
        own = self._own_instance
        others = [place for place in places if place.instance.id != own]
        if not others:
            raise ObjectNotFound(f"no other store of the cluster has published object {oid.hex()}")
        newest = others[0].life
        live = [place for place in others if place.life == newest and self._directory.may_be_live(place.instance)]
        if not live:
            raise lost_error(oid, [place.instance for place in others if place.life == newest])
        # Where it was replaced since, and not published yet, the new one is what the ID means.
        anew = [
            Place(oid, place.instance, ANY_GENERATION, place.nbytes, place.session, place.sequence, None)
            for place in live
            if place.origin is None
        ]
        return live + anew

    # --- exactly one life, as a reference names it

    def fetch_life(self, oid: bytes, life: Life) -> ObjectID:
        """Fetch one life of an object, as :meth:`fetch_lives`; return the ID under which it is here."""
        (outcome,) = self.fetch_lives([(oid, life)])
        if isinstance(outcome, EntrepotError):
            raise outcome
        return outcome

    def fetch_lives(self, wanted: Sequence[tuple[bytes, Life]]) -> list[Outcome]:
        """Fetch exactly these lives of objects: each from its own instance, or from one that has a copy.

        Returns:
            for each the ID under which it is here; or ObjectLost: no store that can be reached has it any more;
            StoreFull: it does not fit here; DirectoryUnavailable: nothing is known about its instance.
        """
        keys = [oid + life.instance.encode() + life.generation.to_bytes(8, "big") for oid, life in wanted]
        mine: dict[bytes, tuple[bytes, Life, PendingFetch]] = {}
        futures: list[PendingFetch] = []
        with self._lock:
            for key, (oid, life) in zip(keys, wanted, strict=True):
                running = self._running.get(key)
                if running is None:
                    running = self._running[key] = PendingFetch(self._ended)
                    mine[key] = (oid, life, running)
                futures.append(running)
        try:
            pending = list(mine.values())
            while pending:  # each ID once in a round, because a sink fetches one life of it
                round_of = {oid: (life, future) for oid, life, future in reversed(pending)}
                pending = [each for each in pending if round_of[each[0]][1] is not each[2]]
                self._fetch_lives(
                    {oid: life for oid, (life, _) in round_of.items()},
                    {oid: future for oid, (_, future) in round_of.items()},
                )
        finally:
            with self._lock:
                for key in mine:
                    del self._running[key]
            for oid, _, future in mine.values():
                if not future.done():  # an error of this module
                    future.set_result(EntrepotError(f"the fetch of object {oid.hex()} failed; see the gateway's log"))
        return [future.result() for future in futures]

    def _fetch_lives(self, lives: dict[bytes, Life], outcomes: dict[bytes, PendingFetch]) -> None:
        """From the instances where the lives began; what is not there any more, from those that have a copy."""
        try:
            origins = find_instances(self._directory, {life.instance for life in lives.values()})
        except EntrepotError as error:
            self._fail(dict.fromkeys(lives, error), outcomes)
            return
        candidates = [
            _Candidate(oid, [Place(oid, origin, life.generation, 0, b"", 0, None)])
            for oid, life in lives.items()
            if (origin := origins.get(life.instance)) is not None
            and origin.id != self._own_instance
            and self._directory.may_be_live(origin)
        ]
        failures = self._try_places(candidates, outcomes, lives)
        self._fail(_final(failures, list(lives)), outcomes)
        left = [oid for oid in lives if not outcomes[oid].done()]
        for begin in range(0, len(left), LOOKUP_IDS):
            self._fetch_copies(left[begin : begin + LOOKUP_IDS], lives, origins, failures, outcomes)

    def _fetch_copies(
        self,
        oids: list[bytes],
        lives: dict[bytes, Life],
        origins: dict[str, Instance],
        failures: dict[bytes, EntrepotError],
        outcomes: dict[bytes, PendingFetch],
    ) -> None:
        try:
            published = self._directory.get().places(oids)
        except EntrepotError as error:
            self._fail({oid: _unknown_copies(error, oid, origins.get(lives[oid].instance)) for oid in oids}, outcomes)
            return
        first: list[_Candidate] = []
        then: list[_Candidate] = []
        for oid, places in zip(oids, published, strict=True):
            life, tried = lives[oid], oid in failures
            # What is at its own instance in another generation was moved away, and has come back as a copy.
            live = [
                place
                for place in places.entries
                if place.instance.id != self._own_instance
                and not (tried and (place.instance.id, place.generation) == life)
                and self._directory.may_be_live(place.instance)
            ]
            if same := [place for place in live if place.life == life]:
                first.append(_Candidate(oid, same))
            # A copy of a copy names the first of the lives that it is one of, and has the others in its envelope.
            if rest := [place for place in live if place.life != life and place.origin is not None]:
                then.append(_Candidate(oid, rest))
        failures = failures | self._try_places(first, outcomes, lives)
        self._fail(_final(failures, oids), outcomes)
        second = self._try_places([each for each in then if not outcomes[each.oid].done()], outcomes, lives)
        self._fail(_final(second, oids), outcomes)
        for oid, places in zip(oids, published, strict=True):
            if not outcomes[oid].done():
                origin = origins.get(lives[oid].instance)
                copies = [place.instance for place in places.entries if place.life == lives[oid]]
                lost = [origin] if origin is not None else copies
                outcomes[oid].set_result(failures.get(oid) or places.damage or lost_error(oid, lost))

    @staticmethod
    def _fail(errors: dict[bytes, EntrepotError], outcomes: dict[bytes, PendingFetch]) -> None:
        for oid, error in errors.items():
            outcomes[oid].set_result(error)

    def pull(self, wanted: Sequence[Wanted], peer: PeerConnections, role: Role) -> list[EntrepotError | None]:
        """Fetch objects from one peer that has asked for that: they are moved here, or copies are to be kept here.

        Returns:
            for each object None, or why it is not here now.
        """
        return receive(peer, wanted, StoreSink(self._sessions, self._unrecorded, role=role))

    def published(self, oids: Sequence[bytes]) -> set[bytes]:
        """Return which of these objects another store has published.

        Raises:
            DirectoryUnavailable: the directory cannot be asked.
        """
        own, published = self._own_instance, set[bytes]()
        for begin in range(0, len(oids), LOOKUP_IDS):
            part = oids[begin : begin + LOOKUP_IDS]
            for oid, places in zip(part, self._directory.get().places(part), strict=True):
                if any(place.instance.id != own for place in places.entries):
                    published.add(oid)
        return published

    # --- transfers

    def _try_places(
        self,
        candidates: list[_Candidate],
        outcomes: dict[bytes, PendingFetch],
        lives: dict[bytes, Life] | None = None,
    ) -> dict[bytes, EntrepotError]:
        """Fetch each object from its first place; what fails there from the next; and so on.

        Returns:
            why some could not be fetched. The outcomes of the others are set as soon as they are here, because
            somebody may wait for one of them alone.
        """

        def transfer(group: list[_Candidate]) -> None:
            self._transfer(group, StoreSink(self._sessions, self._unrecorded, lives=lives, arrived=arrived))

        def arrived(oid: bytes, target: ObjectID) -> None:
            if not outcomes[oid].done():  # received again after the connection broke
                outcomes[oid].set_result(target)

        left = candidates
        while left := [each for each in left if not outcomes[each.oid].done() and each.failure is None]:
            by_instance: dict[str, list[_Candidate]] = defaultdict(list)
            for candidate in left:
                by_instance[candidate.places[0].instance.id].append(candidate)
            groups = list(by_instance.values())
            # The last group in this thread: most fetches have only one.
            transfers = [self._pool.submit(transfer, group) for group in groups[:-1]]
            transfer(groups[-1])
            for running in transfers:
                running.result()
        return {each.oid: each.failure for each in candidates if each.failure is not None}

    def _transfer(self, group: list[_Candidate], sink: StoreSink) -> None:
        instance = group[0].places[0].instance
        wanted = [Wanted(candidate.oid, candidate.places[0].generation or None) for candidate in group]
        errors = self._receive(wanted, instance, sink)
        if all(isinstance(error, StoreUnavailable) for error in errors):
            moved = self._at_other_addresses(instance)
            if moved is not None:
                errors = self._receive(wanted, moved, sink)
        for candidate, error in zip(group, errors, strict=True):
            place = candidate.places.pop(0)
            if candidate.oid in sink.targets:
                continue
            if isinstance(error, StoreFull):  # here: another place does not help
                candidate.failure = error
                continue
            candidate.errors.append(error or ObjectLost("it was not received"))
            if isinstance(error, Timeout):  # it would be silent about another generation, too
                candidate.places = [each for each in candidate.places if each.instance.id != place.instance.id]
            if not candidate.places:
                candidate.failure = _failure(candidate, place.instance)

    def _receive(self, wanted: list[Wanted], instance: Instance, sink: StoreSink) -> list[EntrepotError | None]:
        try:
            return receive(self._peers.get(instance), wanted, sink)
        except EntrepotError as error:
            return [error] * len(wanted)

    def _at_other_addresses(self, instance: Instance) -> Instance | None:
        """The instance as its gateway has registered it since, if that was restarted elsewhere."""
        try:
            return find_instance(
                self._directory,
                lambda each: each.id == instance.id and each.live and each.addresses != instance.addresses,
            )
        except DirectoryUnavailable:
            return None


def _final(errors: dict[bytes, EntrepotError], oids: Sequence[bytes]) -> dict[bytes, EntrepotError]:
    """Those of the errors of these objects after which no other place is tried."""
    return {oid: errors[oid] for oid in oids if not isinstance(errors.get(oid, ObjectLost()), _ELSEWHERE)}


def _failure(candidate: _Candidate, last: Instance) -> EntrepotError:
    reasons = "; ".join(dict.fromkeys(map(str, candidate.errors)))
    text = f"object {candidate.oid.hex()} could not be fetched from host {last.host}: {reasons}"
    if all(isinstance(error, ObjectNotFound) for error in candidate.errors):
        return ObjectNotFound(text)  # deleted since it was published
    return ObjectLost(text)


def lost_error(oid: bytes, instances: Sequence[Instance]) -> ObjectLost:
    """The error for an object that only these instances had, none of which is live."""
    if not instances:
        return ObjectLost(
            f"the store that had object {oid.hex()} is not known to the cluster's directory: it has left the cluster, "
            "or was lost long ago"
        )
    where = " and ".join(dict.fromkeys(describe_lost(instance) for instance in instances))
    return ObjectLost(f"object {oid.hex()} was in the store of {where}")


def _unknown_copies(error: EntrepotError, oid: bytes, began_at: Instance | None) -> EntrepotError:
    """The error for an object whose copies cannot be looked up; it says where it was if that is known to be lost."""
    if began_at is None or began_at.live:
        return error
    where = f"object {oid.hex()} was in the store of {describe_lost(began_at)}"
    return type(error)(f"{where}, and whether there are copies is not known: {error}")


def describe_lost(instance: Instance) -> str:
    """Say which host an instance was on, and since when it is lost."""
    since = instance.lost_since
    at = "" if since is None else f", lost since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(since))}"
    return f"host {instance.host} (instance {instance.id}{at})"


def is_unknown(error: EntrepotError) -> bool:
    """Whether an error of a fetch says nothing about where the object is, so that it may still turn up."""
    return isinstance(error, (ObjectNotFound, DirectoryUnavailable))
