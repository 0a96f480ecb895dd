"""The publisher's loop: scan the store, renew the lease, write differences at a limited rate."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING

from entrepot.errors import EntrepotError, StoreUnavailable

from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.errors import ClusterRefused, ClusterUnavailable, ResourceNotFound
from entrepot_operator.kubernetes.objects import GlobalObject, LocalObject
from entrepot_operator.publisher.diff import PublishedObject, Write, plan_writes
from entrepot_operator.publisher.limits import Limits, RateLimiter
from entrepot_operator.publisher.published_set import PublishedSet
from entrepot_operator.publisher.snapshot import PublisherIdentity, StoreScanner

if TYPE_CHECKING:
    from entrepot import Store

# A scan takes time from the daemon, which the tasks need: at most this share of it.
MAX_SCAN_SHARE = 0.05
MAX_PAUSE_SECONDS = 15.0


@dataclass
class Report:
    """The result of one step.

    Attributes:
        desired: how many resources the API should have.
        written: requests that changed something.
        waiting: changes deferred by the rate limit.
        refused: resources that the API server rejects.
        left_out: objects that exceed the limits.
    """

    desired: int = 0
    written: int = 0
    waiting: int = 0
    refused: int = 0
    left_out: int = 0


class Publisher:
    """Reports the contents of one node's store to one cluster's API.

    Args:
        api: the cluster's.
        connect: connects to the store; called again after the store was unavailable.
        identity: node and Store whose objects these are.
        namespace: to publish to.
        limits: limits on amount and rate.
        print_message: receives messages for display.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        api: Api,
        connect: Callable[[], Store],
        identity: PublisherIdentity,
        namespace: str,
        limits: Limits | None = None,
        *,
        print_message: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits or Limits()
        self._connect = connect
        self._store: Store | None = None
        self._scanner = StoreScanner(identity, self._limits)
        self._published_set = PublishedSet(api, namespace, identity, self._limits)
        self._rate_limiter = RateLimiter(self._limits.writes_per_second, self._limits.burst, clock)
        self._print_message = print_message or (lambda line: print(f"entrepot: {line}", file=sys.stderr, flush=True))
        self._clock = clock
        self._existing: dict[str, PublishedObject] | None = None
        self._read_at = 0.0
        self._renewed_at: float | None = None
        self._refused: dict[str, PublishedObject] = {}
        self._printed: set[str] = set()
        self._scan_seconds = 0.0

    def step(self) -> Report:
        """Scan once, and write what the rate limit allows.

        Raises:
            StoreUnavailable: the store cannot be reached. Its lease is not renewed, so its objects expire.
            VersionMismatch: the cluster's CRDs are missing, or of another version.
            AccessDenied, ClusterUnavailable, ResourceNotFound: the API cannot be written to.
        """
        store = self._open_store()
        begin = self._clock()
        try:
            desired = self._scanner.scan(store)
        except StoreUnavailable:
            self._close_store()
            raise
        self._scan_seconds = self._clock() - begin
        for note in desired.notes:
            self._print_once(note)
        self._renew_if_due(store.instance_id)
        if self._existing is None or self._clock() - self._read_at > self._limits.resync_seconds:
            self._existing = self._published_set.read()
            self._read_at = self._clock()
            self._refused.clear()
        existing = self._existing
        targets: dict[str, PublishedObject] = {**desired.locals, **desired.globals}
        writes = [candidate for candidate in plan_writes(targets, existing) if not self._is_refused(candidate)]
        report = Report(desired=len(targets), left_out=desired.left_out)
        for index, write in enumerate(writes):
            self._renew_if_due(store.instance_id)
            if self._existing is None or not self._rate_limiter.try_acquire():
                report.waiting = len(writes) - index
                break
            self._write(write, existing)
            report.written += 1
        report.refused = len(self._refused)
        if desired.left_out:
            self._print_once(
                f"{desired.left_out} objects are not published: the limit is {self._limits.max_objects} per node, "
                f"largest first, of at least {self._limits.min_bytes} bytes each"
            )
        return report

    def publish_all(self, seconds: float) -> Report:
        """Repeat steps until no changes are pending.

        Args:
            seconds: timeout.

        Raises:
            ClusterUnavailable: timeout. Otherwise as :meth:`step`.
        """
        end = self._clock() + seconds
        total = self.step()
        # The statuses of resources just written are left to the next step.
        while True:
            after = self.step()
            total = replace(after, written=total.written + after.written)
            if not after.written and not after.waiting:
                return total
            if self._clock() > end:
                raise ClusterUnavailable(f"{after.waiting} changes still pending after {seconds:g} s: allow more time")
            if after.waiting:
                time.sleep(1 / self._limits.writes_per_second)

    def run(self, stop: Event) -> None:
        """Publish until stopped. Published resources stay, and expire unless another publisher continues.

        Args:
            stop: set from elsewhere, e.g. by a signal handler.
        """
        pause = self._limits.scan_seconds
        while not stop.is_set():
            try:
                report = self.step()
            except EntrepotError as error:
                # The cause may be temporary: the store comes back, a role is bound. A later step will find out.
                self._print_once(str(error))
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            else:
                if pause > self._limits.scan_seconds:
                    self._printed.clear()
                pause = self._limits.scan_seconds
                if report.written:
                    self._print_message(
                        f"{report.desired} resources wanted, {report.written} written, {report.waiting} waiting, "
                        f"{report.refused} refused, {report.left_out} left out"
                    )
            min_pause = self._scan_seconds / MAX_SCAN_SHARE
            self._wait_for_next_scan(stop, max(pause, min_pause) * random.uniform(0.9, 1.1))
        self.close()

    def keep_alive(self) -> None:
        """Renew the lease if it is due, without scanning all objects.

        Raises:
            StoreUnavailable: the store cannot be reached, and the lease is not renewed.
            AccessDenied, ClusterRefused, ClusterUnavailable: it could not be renewed.
        """
        store = self._open_store()
        try:
            store.status()
        except StoreUnavailable:
            self._close_store()
            raise
        self._renew_if_due(store.instance_id)

    def _wait_for_next_scan(self, stop: Event, seconds: float) -> None:
        """Wait for the next scan, renewing the lease meanwhile if necessary."""
        end = time.monotonic() + seconds
        while not stop.wait(min(end - time.monotonic(), self._limits.lease_seconds / 3)):
            if time.monotonic() >= end:
                return
            try:
                self.keep_alive()
            except EntrepotError as error:
                self._print_once(str(error))

    def close(self) -> None:
        """Disconnect from the store."""
        self._close_store()

    def _open_store(self) -> Store:
        if self._store is not None and self._store.closed:
            self._close_store()
        if self._store is None:
            self._store = self._connect()
        return self._store

    def _close_store(self) -> None:
        if self._store is not None:
            store, self._store = self._store, None
            store.close()

    def _renew_if_due(self, instance: str) -> None:
        now = self._clock()
        if self._renewed_at is not None and now - self._renewed_at < self._limits.lease_seconds / 3:
            return
        # Conservative: the lease started with the request, this time with its response.
        lapsed = self._renewed_at is not None and now - self._renewed_at > 0.8 * self._limits.lease_seconds
        if self._published_set.renew(instance) or lapsed:
            # Others may have marked or deleted objects meanwhile, or these belong to another lease.
            self._existing = None
        self._renewed_at = now

    def _write(self, write: Write, existing: dict[str, PublishedObject]) -> None:
        published_object = write.target
        try:
            if write.operation == "apply":
                self._published_set.apply(published_object)
                existing[published_object.name] = _with_previous_status(
                    published_object, existing.get(published_object.name)
                )
            elif write.operation == "status":
                existing[published_object.name] = self._published_set.write_status(
                    published_object, existing[published_object.name]
                )
            else:
                self._published_set.delete(published_object)
                del existing[published_object.name]
        except ResourceNotFound:
            if write.operation != "status":
                self._existing = None  # the kind was removed: reading again tells which one, and what to do
                raise
            existing.pop(published_object.name, None)  # deleted by somebody else: it is applied again
        except ClusterRefused as error:
            self._refused[published_object.name] = published_object
            self._print_once(f"{published_object.name} is not published: {error}")

    def _is_refused(self, write: Write) -> bool:
        """Whether the same was rejected before; a different object under its name is tried again."""
        if self._refused.get(write.target.name) == write.target:
            return True
        self._refused.pop(write.target.name, None)
        return False

    def _print_once(self, line: str) -> None:
        if line not in self._printed:
            if len(self._printed) > 1000:
                self._printed.clear()
            self._printed.add(line)
            self._print_message(line)


def _with_previous_status(published_object: PublishedObject, previous: PublishedObject | None) -> PublishedObject:
    """The API's state after a spec was written: the status is still the old one."""
    if isinstance(published_object, LocalObject):
        previous_local = previous if isinstance(previous, LocalObject) else None
        return replace(
            published_object,
            state=previous_local.state if previous_local else None,
            available=previous_local.available if previous_local else None,
        )
    previous_global = previous if isinstance(previous, GlobalObject) else None
    return replace(published_object, complete=previous_global.complete if previous_global else None)
