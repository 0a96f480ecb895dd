"""The instances of a cluster as one directory client sees them, and the marking of those that were lost.

An instance is live while its lease is valid. Whoever notices first that a lease has ended writes the time into the
instance's record, where everybody else finds it: so all readers say the same, whatever their hosts' clocks show.

    unknown -> live -> lost -> live (registered again)
                 |       `---> removed, with its places (pruned)
                 `-----------> removed (departed)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from entrepot.errors import DirectoryUnavailable

from entrepot_cluster.directory.backends.interface import Backend, LeaseChange, RecordChange, Snapshot
from entrepot_cluster.directory.codec import Record, decode_record, encode_record, record_key
from entrepot_cluster.directory.errors import DirectoryDamaged
from entrepot_cluster.directory.model import Instance

_log = logging.getLogger("entrepot.cluster")
_MOST_ABSENT = 100_000


class InstanceTable:
    """A copy of the instances' records and of who is live, kept by snapshots and by a watch. For any number of threads.

    Args:
        backend: the directory's server.
        max_age: seconds for which a copy is used; a watch keeps it fresh.
        timeout: seconds that a thread waits for another one's snapshot.
    """

    def __init__(self, backend: Backend, max_age: float, timeout: float) -> None:
        self._backend = backend
        self._max_age = max_age
        self._timeout = timeout
        self._refreshing = threading.Lock()  # one snapshot at a time, so that none overwrites a newer one
        self._lock = threading.Lock()
        # All guarded by _lock.
        self._raw: dict[int, bytes] = {}
        self._live: set[int] = set()
        self._records: dict[int, Record] = {}  # decoded, without damaged ones
        self._damage: dict[int, DirectoryDamaged] = {}
        self._fresh_at = -float("inf")
        self._snapshot_at = -float("inf")  # when the last snapshot was asked for
        self._applied = 0  # how often events were applied
        self._absent: set[int] = set()  # numbers of instances that have left, with entries that are still there

    def refresh(self) -> str:
        """Take a snapshot; returns its cursor."""
        if not self._refreshing.acquire(timeout=self._timeout):
            raise DirectoryUnavailable("the directory did not say in time which instances there are")
        try:
            with self._lock:
                applied = self._applied
            asked_at = time.monotonic()
            snapshot = self._backend.snapshot()
            with self._lock:
                if applied == self._applied:  # otherwise the watch may know better
                    self._load(snapshot)
                    self._fresh_at = max(self._fresh_at, asked_at)
                    self._snapshot_at = asked_at
        finally:
            self._refreshing.release()
        self._mark_lost()
        return snapshot.cursor

    def apply(self, events: Iterable[RecordChange | LeaseChange]) -> None:
        """Apply what a watch reports."""
        with self._lock:
            for event in events:
                self._applied += 1
                if isinstance(event, LeaseChange):
                    (self._live.add if event.live else self._live.discard)(event.number)
                else:
                    self._store(event.number, event.record)
        self._mark_lost()

    def invalidate(self) -> None:
        """Something was changed: the next reader takes a snapshot."""
        with self._lock:
            self._fresh_at = -float("inf")

    def confirm_fresh(self, at: float) -> None:
        """A watch has seen all changes up to a time of the monotonic clock."""
        with self._lock:
            self._fresh_at = max(self._fresh_at, at)

    def instances(self) -> dict[int, Instance]:
        """The instances that were last seen, by number."""
        with self._lock:
            return {number: self._seen(number, record) for number, record in self._records.items()}

    def damage(self) -> list[DirectoryDamaged]:
        """An error for each record that cannot be decoded."""
        with self._lock:
            return list(self._damage.values())

    def damaged_numbers(self) -> set[int]:
        """The numbers of those records."""
        with self._lock:
            return set(self._damage)

    def ensure_fresh(self) -> None:
        """Take a snapshot if the copy is older than ``max_age``."""
        with self._lock:
            age = time.monotonic() - self._fresh_at
        if age > self._max_age:
            self.refresh()

    def resolve(self, numbers: Iterable[int], since: float) -> dict[int, tuple[Instance, int]]:
        """Find the instances of entries' numbers.

        Args:
            numbers: the numbers at the end of the entries' keys.
            since: when these entries were asked for, by the monotonic clock.

        Returns:
            For each number, the instance, and the first epoch whose entries count. Unknown numbers are left out.
        """
        wanted = set(numbers)
        self.ensure_fresh()
        with self._lock:
            unknown = wanted - self._raw.keys() - self._absent
            look = bool(unknown) and self._snapshot_at < since
        if look:
            self.refresh()
            with self._lock:
                # Whoever wrote the entries was registered before, and no number is used again.
                if self._snapshot_at >= since:
                    self._absent |= unknown - self._raw.keys()
        with self._lock:
            return {
                number: (self._seen(number, record), record.confirmed)
                for number in wanted
                if (record := self._records.get(number)) is not None
            }

    def lost_records(self) -> dict[int, tuple[bytes, Record]]:
        """The records of instances that are marked as lost, as they are stored and decoded."""
        with self._lock:
            return {
                number: (self._raw[number], record)
                for number, record in self._records.items()
                if number not in self._live and record.instance.lost_since is not None
            }

    def _load(self, snapshot: Snapshot) -> None:
        for number in self._raw.keys() - snapshot.records.keys():
            self._store(number, None)
        for number, raw in snapshot.records.items():
            if self._raw.get(number) != raw:
                self._store(number, raw)
        self._live = set(snapshot.live)
        if len(self._absent) > _MOST_ABSENT:
            self._absent.clear()

    def _store(self, number: int, raw: bytes | None) -> None:
        self._records.pop(number, None)
        self._damage.pop(number, None)
        if raw is None:
            self._raw.pop(number, None)
            return
        self._raw[number] = raw
        self._absent.discard(number)
        try:
            self._records[number] = decode_record(record_key(number), raw)
        except DirectoryDamaged as error:
            self._damage[number] = error
            _log.warning("%s", error)

    def _seen(self, number: int, record: Record) -> Instance:
        instance = record.instance
        if number in self._live:
            return instance if instance.live else replace(instance, lost_since=None)
        # Not marked yet, or by somebody else at this moment: `refresh` and `apply` have just tried.
        return instance if not instance.live else replace(instance, lost_since=time.time())

    def _mark_lost(self) -> None:
        for number, raw, record in list(self._unmarked()):
            marked = replace(record, instance=replace(record.instance, lost_since=self._backend.now()))
            encoded = encode_record(marked)
            key = record_key(number)
            if self._backend.swap({key: raw}, {key: encoded}):
                current: bytes | None = encoded
            else:
                current = self._backend.read([key])[0]  # somebody else was first, or it has registered again
            with self._lock:
                if self._raw.get(number) == raw:
                    self._store(number, current)

    def _unmarked(self) -> Iterator[tuple[int, bytes, Record]]:
        with self._lock:
            ended = [number for number in self._records if number not in self._live]
            for number in ended:
                record = self._records[number]
                if record.instance.live:
                    yield number, self._raw[number], record
