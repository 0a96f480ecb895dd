"""Changes of a directory's instances, from the copies that informers keep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from entrepot_cluster.directory.backends.interface import LeaseChange, RecordChange

from entrepot_operator.directory.server_clock import ServerClock
from entrepot_operator.directory.view import LeaseView, ShardView

CHECK_SECONDS = 5.0  # a silent watch says nothing about the server; see KubernetesSubscription.wait
_END_MARGIN_SECONDS = 0.05  # after the end of a lease, before it is checked


class KubernetesSubscription:
    """See :class:`~entrepot_cluster.directory.backends.interface.Subscription`.

    A lease that ends in the copy is read from the API server before anybody hears of it: the copy may lag behind, and
    an instance that counts as lost is marked as such for everybody.

    Fields belong to the thread that calls ``wait``.

    Args:
        shards, leases: the copies.
        changed: notified of their changes.
        clock: the API server's.
        numbers: of the instances that the snapshot had.
        live_numbers: those of them with valid leases.
        check: asks the API server, and waits until the copies are as new as its response.
        holder: reads from the API server who holds the lease on a number.
    """

    def __init__(
        self,
        shards: ShardView,
        leases: LeaseView,
        changed: threading.Condition,
        clock: ServerClock,
        numbers: Iterable[int],
        live_numbers: Iterable[int],
        check: Callable[[], object],
        holder: Callable[[int], str | None],
    ) -> None:
        self._shards = shards
        self._leases = leases
        self._changed = changed
        self._clock = clock
        self._records: dict[int, bytes | None] = dict.fromkeys(numbers)  # None: as the snapshot had it
        self._live = set(live_numbers)
        self._check = check
        self._holder = holder
        self._checked_at = time.monotonic()
        self._closed = threading.Event()

    def wait(self, seconds: float) -> list[RecordChange | LeaseChange]:
        """See the interface. Every CHECK_SECONDS, it asks whether the API server still responds."""
        end = time.monotonic() + seconds
        while not self._closed.is_set():
            changes = [*self._record_changes(), *self._lease_changes()]
            now = time.monotonic()
            if changes:
                return changes
            if now >= self._checked_at + CHECK_SECONDS:
                self._check()
                self._checked_at = time.monotonic()
                continue
            if now >= end:
                return []
            lease_end = self._leases.next_end(self._clock.now()) + _END_MARGIN_SECONDS
            with self._changed:
                # A change between the comparison and here is seen after the next one, or at the end of this wait.
                self._changed.wait(max(0.0, min(end - now, lease_end, self._checked_at + CHECK_SECONDS - now, 0.5)))
        return []

    def close(self) -> None:
        """See the interface."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    def _record_changes(self) -> list[RecordChange | LeaseChange]:
        records = self._shards.records()
        changes: list[RecordChange | LeaseChange] = [
            RecordChange(number, None) for number in self._records.keys() - records.keys()
        ]
        changes += [
            RecordChange(number, record) for number, record in records.items() if self._records.get(number) != record
        ]
        self._records = dict(records)
        return changes

    def _lease_changes(self) -> list[RecordChange | LeaseChange]:
        live = self._leases.live(self._clock.now()).keys()
        changes: list[RecordChange | LeaseChange] = [LeaseChange(number, True) for number in live - self._live]
        self._live |= live
        for number in self._live - live:
            if self._holder(number) is None:
                changes.append(LeaseChange(number, False))
                self._live.discard(number)
        return changes
