"""Keeps the directory up to date with what the store has: written behind, in batches.

unregistered ──registered──▶ filling ──everything was published──▶ confirmed ──changes──▶ confirmed
     ▲                          └──────────────┬─────────────────────┘
     └──the directory has forgotten the instance; whoever publishes an object waits for the next registration
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import DirectoryUnavailable, EntrepotError, ObjectNotFound, StoreUnavailable
from entrepot.ids import ObjectID
from entrepot.phrases import count_of

from entrepot_cluster.directory import model
from entrepot_cluster.directory.errors import InstanceForgotten, InstanceSuperseded
from entrepot_cluster.directory.model import NameEntry, PlaceEntry
from entrepot_cluster.gateway.current_registration import CurrentRegistration
from entrepot_cluster.gateway.published import OWN_PREFIX, Change, NameKey, Published, place_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar

    from entrepot import Store

    from entrepot_cluster.directory.registration import Registration
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.object_source import StoreObjects
    from entrepot_cluster.gateway.published import Snapshot
    from entrepot_cluster.gateway.store_snapshot import StoreSnapshots

    T = TypeVar("T")

INTERVAL_SECONDS = 0.5
MAX_INTERVAL_SECONDS = 30.0
_SHARE_OF_TIME = 0.05  # for listing the store, which keeps its daemon busy
BATCH = 1000
LOCK_SECONDS = 10.0  # how long a caller of publish() waits for others that write to the directory
OLDEST_SEQUENCE = 1

_log = logging.getLogger(__name__)


class Publication:
    """Publishes what the store has, from a thread of its own. :meth:`publish` may be called from any thread.

    Args:
        store: a connection to the store, in any session.
        directory: of the cluster.
        snapshots: say what is to be published.
        source: knows what objects are copies of.

    Attributes:
        when_listed: called with each listing, by the thread. Set it before :meth:`start`.
        when_published: the same, once it is published.
    """

    def __init__(
        self, store: Store, directory: DirectoryAccess, snapshots: StoreSnapshots, source: StoreObjects
    ) -> None:
        self._store = store
        self._directory = directory
        self._snapshots = snapshots
        self._source = source
        self.when_listed: Callable[[Snapshot], None] = lambda _: None
        self.when_published: Callable[[Snapshot], None] = lambda _: None
        self._lock = threading.Lock()  # held while the directory is written, so that changes arrive in order
        self._published = Published()  # guarded by _lock
        self._current = CurrentRegistration()  # set under _lock
        self._confirmed = False  # guarded by _lock
        self._held: dict[NameKey, NameEntry] = {}  # names that no object has, see hold_name(); guarded by _lock
        self._dropped: set[NameKey] = set()  # of those, to be withdrawn; guarded by _lock
        # What publish() has sent since the present listing began, which may have missed it; guarded by _lock
        self._since_listing: set[bytes | NameKey] = set()
        self._took_up = False  # what an earlier gateway had published by request; of the thread
        self._listing_seconds = 0.0  # how long listing the store took; of the thread
        self._stopping = threading.Event()
        self._wake = threading.Event()  # the next update is due now: there is a new registration, or none follows
        self._thread = threading.Thread(target=self._run, name="publication", daemon=True)

    @property
    def highest_sequence(self) -> int:
        """For :meth:`~entrepot_cluster.directory.directory.Directory.register`."""
        with self._lock:
            return self._published.highest_sequence

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def registered(self, registration: Registration) -> None:
        """Publish under a new registration from now on, beginning with everything."""
        with self._lock:
            self._current.set(registration)
            self._confirmed = False
        self._wake.set()

    def wait_until_forgotten(self, seconds: float) -> bool:
        """Wait for that long, but only until the directory has forgotten the registration; whether it has."""
        return self._current.wait_until_forgotten(seconds)

    def suspect(self) -> None:
        """End :meth:`wait_until_forgotten` to ask the directory, which seems not to know the registration any more."""
        self._current.suspect()

    def stop_waiting(self) -> None:
        """End :meth:`wait_until_forgotten`."""
        self._current.interrupt()

    def publish(self, *oids: bytes) -> list[tuple[PlaceEntry, int]]:
        """Publish objects now, with their names, and keep them published as long as the store has them.

        Returns:
            what was published, and how many stores are to have the object.

        Raises:
            ObjectNotFound: one of them is not in the store; none is published then.
            DirectoryUnavailable: they could not be published now; they will be later.
            StoreUnavailable: another gateway of this store publishes in place of this one.
        """
        end = time.monotonic() + LOCK_SECONDS
        while True:
            entries = [self._entry(ObjectID(oid)) for oid in oids]
            if self._publish([(entry, keys) for entry, keys, _ in entries], end):
                return [(entry, replicas) for entry, _, replicas in entries]
            left = end - time.monotonic()
            if left <= 0 or not self._current.wait(left):
                raise DirectoryUnavailable(
                    f"{count_of(len(oids), 'object')} could not be published within {LOCK_SECONDS:g} s: the directory "
                    "has forgotten this store, and has not taken its registration again; they will be published after "
                    "that"
                )

    def _publish(self, entries: list[tuple[PlaceEntry, list[NameKey]]], end: float) -> bool:
        """Publish objects; False: the directory has forgotten this instance, so try again once that is registered."""
        for entry, _ in entries:
            self._snapshots.add_explicit(entry.oid, entry.generation)
        if not self._lock.acquire(timeout=max(0.0, end - time.monotonic())):
            raise DirectoryUnavailable(
                f"{count_of(len(entries), 'object')} could not be published within {LOCK_SECONDS:g} s: other changes "
                "are being written to the directory; they will be published after them"
            )
        try:
            published = self._published
            places = [
                replace(entry, sequence=published.sequence_of(entry.oid, entry.generation)) for entry, _ in entries
            ]
            names = [
                NameEntry(
                    *key, entry.oid, entry.generation, published.sequence_of_name(key, entry.oid, entry.generation)
                )
                for entry, keys in entries
                for key in keys
            ]
            self._since_listing.update(entry.oid for entry, _ in entries)
            self._since_listing.update(key for _, keys in entries for key in keys)
            return self._send_if_known(Change(places, names, [], [], [], []))
        finally:
            self._lock.release()

    def hold_name(self, key: NameKey) -> None:
        """Publish a name now that no object of the store has, until :meth:`drop_name` or the end of this process.

        Raises:
            DirectoryUnavailable: it could not be published.
            StoreUnavailable: another gateway of this store publishes in place of this one.
        """
        entry = NameEntry(*key, bytes(20), 1)
        with self._lock:
            self._held[key] = entry
            self._since_listing.add(key)
            self._send_now(Change([], [entry], [], [], [], []))

    def drop_name(self, key: NameKey) -> None:
        """Withdraw such a name; if the directory is away, as soon as it is back.

        Raises:
            DirectoryUnavailable: it was not withdrawn yet.
            StoreUnavailable: another gateway of this store publishes in place of this one.
        """
        with self._lock:
            self._held.pop(key, None)
            self._dropped.add(key)
            self._since_listing.add(key)
            self._send_now(self._withdrawal())
            self._dropped.clear()

    def _entry(self, oid: ObjectID) -> tuple[PlaceEntry, list[NameKey], int]:
        """An object as it is published, its names, and how many stores are to have it."""
        generation = raw_objects.generation_of(self._store, oid)
        if generation is None:
            raise ObjectNotFound(f"no object {oid} is sealed in the store of host {self._store.host}")
        belonging = self._source.look_up(oid)
        nbytes = raw_objects.entry_of(self._store, oid).nbytes
        origin = self._source.origin(oid, generation, belonging.scope, belonging.session)
        session = model.session_reference(belonging.scope, belonging.session)
        keys = [(belonging.scope, belonging.session, each) for each in belonging.names]
        return (
            place_entry(oid.binary, generation, nbytes, session, origin),
            [key for key in keys if not key[2].startswith(OWN_PREFIX)],
            self._source.terms.replicas(*belonging[:2]) if origin is None else origin.replicas,
        )

    def _send_now(self, change: Change) -> None:
        """As :meth:`_send_if_known`, but a forgotten registration is DirectoryUnavailable. Guarded by _lock."""
        if not self._send_if_known(change):
            raise DirectoryUnavailable(
                "the directory has forgotten this store, and has not taken its registration again yet"
            )

    def _send_if_known(self, change: Change) -> bool:
        """Send a change; False: the directory has forgotten the registration. Guarded by _lock."""
        registration = self._current.get()
        if registration is None and self._current.is_awaited:
            return False
        try:
            self._send(change)
        except InstanceForgotten:
            if registration is not None:
                self._current.forgotten(registration)
            return False
        except InstanceSuperseded as error:
            raise StoreUnavailable(error.message) from error
        return True

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        failing = False
        while True:
            self._wake.wait(self._interval())
            self._wake.clear()
            if self._stopping.is_set():
                return
            try:
                self._update()
                if failing:
                    _log.info("the directory takes what this store publishes again")
                failing = False
            except InstanceForgotten:
                if (registration := self._current.get()) is not None:
                    self._current.forgotten(registration)
            except InstanceSuperseded:
                continue  # membership finds that out too, and gives up
            except EntrepotError as error:
                if not failing:
                    _log.warning("what this store has could not be published, and is tried again: %s", error)
                failing = True
            except Exception:
                _log.exception("what this store has could not be published, and is tried again")
                failing = True

    def _interval(self) -> float:
        return min(max(INTERVAL_SECONDS, self._listing_seconds / _SHARE_OF_TIME), MAX_INTERVAL_SECONDS)

    def _update(self) -> None:
        with self._lock:
            self._since_listing.clear()  # also if the directory is away, so that it does not grow until that is back
        self._snapshots.forget_gone()
        with self._lock:
            if self._current.get() is None:
                return
            if not self._confirmed:
                self._send(self._published.everything())
            self._since_listing.clear()
        began = time.monotonic()
        snapshot = self._snapshot()
        self._listing_seconds = time.monotonic() - began
        self.when_listed(snapshot)
        with self._lock:
            self._send(self._withdrawal())
            self._dropped.clear()
            snapshot.names.update(self._held)
            self._send(self._published.change_to(snapshot).without(self._since_listing))
            registration = self._current.get()
            if not self._confirmed and registration is not None:
                registration.confirm()
                self._confirmed = True
        self.when_published(snapshot)

    def _snapshot(self) -> Snapshot:
        """List the store. The first time, take up what an earlier gateway of this store published by request."""
        registration = self._current.get()
        if self._took_up or registration is None or not registration.was_known:
            self._took_up = self._took_up or registration is not None
            return self._snapshots.take()
        candidates = self._snapshots.take(unpublished=True).unpublished
        for batch in _batches(candidates):
            for oid, published in zip(batch, self._directory.get().places(batch), strict=True):
                own = (place for place in published.entries if place.instance.id == registration.instance.id)
                if any(place.generation == candidates[oid] for place in own):
                    self._snapshots.add_explicit(oid, candidates[oid])
        self._took_up = True
        return self._snapshots.take()

    def _withdrawal(self) -> Change:
        """Of the names that were dropped; guarded by _lock."""
        return Change([], [], [], [], [key for key in self._dropped if key not in self._held], [])

    def _send(self, change: Change) -> None:
        """Write a change to the directory, in batches; guarded by _lock."""
        if not change:
            return
        self._directory.get()  # not if it hangs
        registration = self._current.get()
        if registration is None:
            raise DirectoryUnavailable("this store is not registered in the cluster's directory at the moment")
        for places in _batches(self._with_sequences(registration, change.places)):
            self._published.added(places, (), (), registration.publish(places))
        for names in _batches(self._names_with_sequences(registration, change.names)):
            self._published.added((), names, (), registration.publish((), names))
        for sessions in _batches(change.sessions):
            registration.publish((), (), sessions)
            self._published.added((), (), sessions, 0)
        for oids in _batches(change.gone_places):
            registration.withdraw(oids)
            self._published.removed(oids, (), ())
        for keys in _batches(change.gone_names):
            registration.withdraw((), keys)
            self._published.removed((), keys, ())
        for gone in _batches(change.gone_sessions):
            registration.withdraw((), (), gone)
            self._published.removed((), (), gone)

    def _with_sequences(self, registration: Registration, places: list[PlaceEntry]) -> list[PlaceEntry]:
        """Give objects that were published before the number that they had, so that they do not count as newer.

        That is the case for copies, whose originals were, and after a restart of the gateway for everything.
        """
        returns = registration.was_known and not self._confirmed
        unknown = [entry for entry in places if entry.sequence == 0 and (returns or entry.origin is not None)]
        numbers: dict[bytes, int] = {}
        for batch in _batches(unknown):
            for entry, published in zip(batch, self._directory.get().places([each.oid for each in batch]), strict=True):
                life = entry.origin or model.Life(registration.instance.id, entry.generation)
                number = next((place.sequence for place in published.entries if place.life == life), 0)
                # A copy is never newer than what is published, even if that is not known any more.
                numbers[entry.oid] = number or (OLDEST_SEQUENCE if entry.origin is not None else 0)
        return [replace(entry, sequence=entry.sequence or numbers.get(entry.oid, 0)) for entry in places]

    def _names_with_sequences(self, registration: Registration, names: list[NameEntry]) -> list[NameEntry]:
        """The same for names."""
        if not registration.was_known or self._confirmed:
            return names
        numbered: list[NameEntry] = []
        for entry in names:
            bindings = self._directory.get().lookup_name(entry.scope, entry.session, entry.name).entries
            number = next(
                (
                    binding.sequence
                    for binding in bindings
                    if binding.instance.id == registration.instance.id
                    and (binding.oid, binding.generation) == (entry.oid, entry.generation)
                ),
                0,
            )
            numbered.append(replace(entry, sequence=entry.sequence or number))
        return numbered


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, BATCH)):
        yield batch
