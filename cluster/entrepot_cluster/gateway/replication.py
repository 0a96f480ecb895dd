"""Keeps as many copies of objects as their sessions ask for, on different hosts.

An object of which copies are wanted, in the store that has the original or has taken its place:

    listed and published ──▶ short of copies ──other hosts have fetched it──▶ complete
                                  ▲    └──there are no more hosts──▶ short of hosts
                                  └──a store with a copy is lost, or its copy is deleted──┘
    deleted here ──▶ its copies are deleted, as far as they were made for this
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from itertools import islice
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import (
    EntrepotError,
    InvalidArgument,
    ObjectNotFound,
    StoreFull,
    Timeout,
    VersionMismatch,
)
from entrepot.ids import ObjectID
from entrepot.origins import Life, Origin, Role, record_of

from entrepot_cluster.directory.model import PlaceEntry
from entrepot_cluster.gateway.kept_object import KeptObject
from entrepot_cluster.gateway.replica_plan import Copies, Duty, copies_of, targets_for
from entrepot_cluster.gateway.replica_records import ReplicaRecord, ReplicaRecords
from entrepot_cluster.gateway.replica_transfers import ReplicaTransfers
from entrepot_cluster.transport.endpoints import Wanted

if TYPE_CHECKING:
    from typing import TypeVar

    from entrepot import Store

    from entrepot_cluster.directory.model import Instance
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.object_source import StoreObjects
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.published import Snapshot
    from entrepot_cluster.gateway.session_stores import SessionStores

    T = TypeVar("T")

INTERVAL_SECONDS = 0.5
WAIT_SECONDS = 0.2  # before somebody who waits for copies looks again
LOOKUP_IDS = 1000
_MAX_MOVED = 100_000  # remembered, for a listing that is older than the move

_log = logging.getLogger(__name__)


class Replication:
    """Makes and withdraws copies, from a thread of its own. The public methods may be called from any thread.

    Args:
        store: a connection to the store, in any session.
        sessions: connections to the store's sessions.
        directory: of the cluster.
        peers, source: the gateway's parts.
        own_address: where other gateways reach this one.
    """

    def __init__(
        self,
        store: Store,
        sessions: SessionStores,
        directory: DirectoryAccess,
        peers: Peers,
        source: StoreObjects,
        own_address: str,
    ) -> None:
        self._store = store
        self._own = store.instance_id
        self._sessions = sessions
        self._directory = directory
        self._peers = peers
        self._source = source
        self._changed = threading.Condition()
        self._listed: Snapshot | None = None  # published, and not looked at yet; guarded by _changed
        self._urgent: set[bytes] = set()  # that somebody waits for; guarded by _changed
        # IDs and generations that another store has taken over, the oldest first; guarded by _changed
        self._moved: OrderedDict[tuple[bytes, int], None] = OrderedDict()
        self._stopping = False  # guarded by _changed
        self._kept: dict[bytes, KeptObject] = {}  # guarded by _changed
        # What was deleted here, ID, generation and life, by the instance that has a copy of it; of the thread
        self._withdrawn: dict[str, set[tuple[bytes, int, Life]]] = {}
        self._records = ReplicaRecords(store)
        self._noting = threading.Lock()  # held while holders are recorded, by the threads that ask for copies
        self._transfers = ReplicaTransfers(
            self._own, own_address, peers, lambda batch, target: self._note_holders(batch, target)
        )
        self._thread = threading.Thread(target=self._run, name="replication", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a copy that is being made is not waited for."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._transfers.close()

    def published(self, snapshot: Snapshot) -> None:
        """Note what the store has, once it is published."""
        with self._changed:
            self._listed = snapshot
            self._changed.notify_all()

    def moved(self, oid: bytes, generation: int) -> None:
        """Note an object that is about to be deleted here because another store has taken it over."""
        with self._changed:
            self._kept.pop(oid, None)
            self._moved[oid, generation] = None
            while len(self._moved) > _MAX_MOVED:
                self._moved.popitem(last=False)
        with self._noting:  # before it is deleted: its record would have the copies deleted, too
            self._records.forget(oid, generation)

    def wait(self, entry: PlaceEntry, wanted: int, seconds: float) -> None:
        """Wait until an object that was just published is on as many hosts as its session asks for.

        Args:
            entry: as it was published.
            wanted: how many.
            seconds: how long to wait.

        Raises:
            Timeout: it is not; the message says where it is.
            DirectoryUnavailable: the directory cannot be asked.
        """
        end = time.monotonic() + seconds
        while wanted > 1:
            copies = self._look_up([KeptObject(entry, wanted)])[0]
            if not copies.missing and not copies.unplaced:
                return
            if time.monotonic() >= end:
                hosts = sorted({instance.host for instance in copies.holders})
                reason = f"; the cluster has no hosts for {copies.unplaced} more" if copies.unplaced else ""
                raise Timeout(
                    f"object {entry.oid.hex()} is on {len(hosts)} of {wanted} hosts ({', '.join(hosts)}) after "
                    f"{seconds:.3g} s{reason}"
                )
            with self._changed:
                self._kept.setdefault(entry.oid, KeptObject(entry, wanted))
                self._urgent.add(entry.oid)
                self._changed.notify_all()
                self._changed.wait(min(WAIT_SECONDS, max(0.0, end - time.monotonic())))

    def status(self) -> dict[str, int]:
        """Count the objects whose copies this store sees to: all, those that are short of copies, or of hosts."""
        with self._changed:
            duties = [kept for kept in self._kept.values() if kept.copies is None or kept.copies.duty != Duty.NONE]
            return {
                "objects": len(duties),
                "incomplete": sum(1 for kept in duties if kept.copies is None or kept.copies.missing),
                "without_host": sum(1 for kept in duties if kept.copies is not None and kept.copies.unplaced),
            }

    # --- the thread

    def _run(self) -> None:
        failing = False
        while True:
            with self._changed:
                if not self._urgent and not self._stopping:
                    self._changed.wait(INTERVAL_SECONDS)
                if self._stopping:
                    return
                listed, self._listed = self._listed, None
                urgent, self._urgent = self._urgent, set()
            try:
                if listed is not None:
                    self._take_in(listed)
                self._withdraw()
                self._make(urgent)
                failing = False
            except EntrepotError as error:
                if not failing:
                    _log.warning("copies that sessions ask for could not be made, and are tried again: %s", error)
                failing = True
            except CancelledError:
                return  # stop()
            except Exception:
                _log.exception("copies that sessions ask for could not be made, and are tried again")
                failing = True
            if failing:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, INTERVAL_SECONDS)

    def _take_in(self, listed: Snapshot) -> None:
        """Note new objects, and those that are gone."""
        gone: list[KeptObject] = []
        with self._changed:
            for oid, wanted in listed.replicas.items():
                entry = listed.places.get(oid)
                if entry is None or (oid, entry.generation) in self._moved:
                    continue
                kept = self._kept.get(oid)
                if kept is not None and kept.entry.generation == entry.generation:
                    kept.entry, kept.wanted = entry, wanted
                    continue
                if kept is not None:
                    gone.append(kept)
                self._kept[oid] = KeptObject(entry, wanted)
            for oid in [oid for oid in self._kept if oid in listed.places and oid not in listed.replicas]:
                del self._kept[oid]  # its session asks for one copy only now
            missing = [kept for oid, kept in self._kept.items() if oid not in listed.replicas]
        for kept in missing:
            if not self._is_here(kept.entry):
                gone.append(kept)
                with self._changed:
                    if self._kept.get(kept.entry.oid) is kept:
                        del self._kept[kept.entry.oid]
        for kept in gone:
            self._note_deleted(kept)
        for record in listed.kept:  # also of what was deleted while no gateway was here to see it
            with self._changed:
                if (record.oid, record.generation) in self._moved:
                    continue
            with self._noting:
                self._records.note_existing(record)
            if not self._is_here(PlaceEntry(record.oid, record.generation, 0)):
                for holder in record.holders:
                    self._withdrawn.setdefault(holder, set()).add((record.oid, record.generation, record.life))

    def _is_here(self, entry: PlaceEntry) -> bool:
        """Whether the store has an object, or knows of it though its bytes were dropped or lost."""
        generation = raw_objects.generation_of(self._store, ObjectID(entry.oid))
        if generation is None:
            return self._store.exists(ObjectID(entry.oid))
        return generation == entry.generation

    def _note_deleted(self, kept: KeptObject) -> None:
        """The original was deleted, and its copies go with it."""
        entry = kept.entry
        with self._changed:
            if (entry.oid, entry.generation) in self._moved:
                return
        for holder in kept.holders:
            self._withdrawn.setdefault(holder, set()).add((entry.oid, entry.generation, self._life(entry)))

    def _withdraw(self) -> None:
        """Have copies of what was deleted here deleted, too; where that cannot be done now, later."""
        if not self._withdrawn:
            return
        instances = {instance.id: instance for instance in self._directory.get().instances()}
        done: set[tuple[bytes, int, Life]] = set()
        for holder in list(self._withdrawn):
            instance = instances.get(holder)
            if instance is not None and not (
                instance.live and self._transfers.may_ask(instance) and self._withdraw_at(instance)
            ):
                continue  # a lost one may return
            done |= self._withdrawn.pop(holder)
        for left in self._withdrawn.values():
            done -= left
        with self._noting:
            for oid, generation, _ in done:
                self._records.forget(oid, generation)

    def _withdraw_at(self, holder: Instance) -> bool:
        by_instance: dict[str, list[Wanted]] = defaultdict(list)
        for oid, _, life in self._withdrawn[holder.id]:
            by_instance[life.instance].append(Wanted(oid, life.generation))
        try:
            for instance, lives in by_instance.items():
                for batch in _batches(lives, LOOKUP_IDS):
                    self._peers.get(holder).discard_copies(batch, instance, Role.REPLICA)
                    if instance == self._own:  # one may have taken the original's place while this store was lost
                        self._peers.get(holder).discard_copies(batch, instance, Role.PRIMARY)
        except (InvalidArgument, VersionMismatch):
            return True  # an older gateway or daemon: they stay until their session ends
        except EntrepotError as error:
            self._transfers.back_off(holder, error)
            return False
        return True

    def _make(self, urgent: set[bytes]) -> None:
        """Look at what may be short of copies, and have them made."""
        with self._changed:
            if not self._kept:
                return
            everything = list(self._kept.values())
        live = frozenset(instance.id for instance in self._directory.instances() if instance.live)
        now = time.monotonic()
        due = [kept for kept in everything if kept.entry.oid in urgent or kept.is_due(live, now)]
        for batch in _batches(due, LOOKUP_IDS):
            self._look_up(batch)
            self._note_holders([kept for kept in batch if kept.holders])
            by_target: dict[str, list[KeptObject]] = defaultdict(list)
            targets: dict[str, Instance] = {}
            for kept in batch:
                for target in self._targets_of(kept):
                    by_target[target.id].append(kept)
                    targets[target.id] = target
            started = [
                transfer
                for instance, wanted in by_target.items()
                for transfer in self._transfers.start(targets[instance], wanted)
            ]
            for transfer in started:
                transfer.result()
        with self._changed:
            self._changed.notify_all()

    def _look_up(self, batch: list[KeptObject]) -> list[Copies]:
        """Find out which stores have the objects."""
        instances = self._directory.instances()
        live = frozenset(instance.id for instance in instances if instance.live)
        published = self._directory.get().places([kept.entry.oid for kept in batch])
        results: list[Copies] = []
        for kept, places in zip(batch, published, strict=True):
            life = self._life(kept.entry)
            kept.copies = copies_of(life, places.entries, instances, self._own, kept.wanted)
            kept.checked_at, kept.live = time.monotonic(), live
            if kept.copies.duty == Duty.KEEP:
                kept.holders.update(holder.id for holder in kept.copies.holders if holder.id != self._own)
            results.append(kept.copies)
        return results

    def _life(self, entry: PlaceEntry) -> Life:
        return entry.origin or Life(self._own, entry.generation)

    def _targets_of(self, kept: KeptObject) -> list[Instance]:
        copies = kept.copies
        if copies is None or copies.duty == Duty.NONE:
            return []
        if copies.duty == Duty.TAKE_OVER and not self._take_over(kept):
            return []
        if not copies.missing:
            return []
        instances = self._directory.instances()
        targets = targets_for(
            kept.entry.oid,
            copies.holders,
            instances,
            lambda each: self._transfers.may_ask(each) and time.monotonic() >= kept.refused.get(each.id, 0.0),
        )
        under_way = [each for each in targets if self._transfers.is_under_way(kept, each)]
        return [each for each in targets if each not in under_way][: max(0, copies.missing - len(under_way))]

    def _take_over(self, kept: KeptObject) -> bool:
        """Record that the copy here has taken the place of the original, which was lost; False: it is gone."""
        oid = ObjectID(kept.entry.oid)
        try:
            belonging = self._source.look_up(oid)
        except ObjectNotFound:
            return False
        origin = self._source.origin(oid, kept.entry.generation, belonging.scope, belonging.session)
        if origin is None:
            return False
        primary = Origin(origin.generation, origin.lives, Role.PRIMARY, origin.replicas)
        store = self._sessions.get(belonging.scope, belonging.session)
        raw_objects.put_small(store, [record_of(store, oid, primary)], replace=True)
        return True

    def _note_holders(self, batch: Sequence[KeptObject], *targets: str) -> None:
        """Record which stores have copies, or are asked to keep one, for a later gateway of this store."""
        with self._noting:
            with self._changed:
                here = [kept for kept in batch if (kept.entry.oid, kept.entry.generation) not in self._moved]
            records = [
                ReplicaRecord(
                    kept.entry.oid, kept.entry.generation, self._life(kept.entry), frozenset({*targets, *kept.holders})
                )
                for kept in here
            ]
            try:
                self._records.note(records)
            except StoreFull as error:  # the copies matter more
                _log.warning("copies of what is deleted while no gateway runs will stay on other hosts: %s", error)


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
