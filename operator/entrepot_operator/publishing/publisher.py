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
from entrepot_io.cluster.api import Api
from entrepot_io.cluster.errors import ClusterRefused, ClusterUnavailable, ResourceNotFound
from entrepot_io.cluster.objects import GlobalObject, LocalObject

from entrepot_operator.publishing.bounds import Bounds, Pace
from entrepot_operator.publishing.cluster import Shelf
from entrepot_operator.publishing.observing import Observer, Origin
from entrepot_operator.publishing.plan import Published, Write, plan

if TYPE_CHECKING:
    from entrepot import Store

# A scan takes time from the daemon, which the tasks need: at most this share of it.
SCAN_SHARE = 0.05
LONGEST_PAUSE_SECONDS = 15.0


@dataclass
class Report:
    """The result of one step.

    Attributes:
        wanted: how many resources the API should have.
        written: requests that changed something.
        waiting: changes deferred by the rate limit.
        refused: resources that the API server rejects.
        left_out: objects that exceed the limits.
    """

    wanted: int = 0
    written: int = 0
    waiting: int = 0
    refused: int = 0
    left_out: int = 0


class Publisher:
    """Reports the contents of one node's store to one cluster's API.

    Args:
        api: the cluster's.
        connect: connects to the store; called again after the store was unavailable.
        origin: node and Store whose objects these are.
        namespace: to publish to.
        bounds: limits on amount and rate.
        say: receives messages for display.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        api: Api,
        connect: Callable[[], Store],
        origin: Origin,
        namespace: str,
        bounds: Bounds | None = None,
        *,
        say: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = bounds or Bounds()
        self._connect = connect
        self._store: Store | None = None
        self._observer = Observer(origin, self._bounds)
        self._shelf = Shelf(api, namespace, origin, self._bounds)
        self._pace = Pace(self._bounds.writes_per_second, self._bounds.burst, clock)
        self._say = say or (lambda line: print(f"entrepot: {line}", file=sys.stderr, flush=True))
        self._clock = clock
        self._known: dict[str, Published] | None = None
        self._read_at = 0.0
        self._renewed_at: float | None = None
        self._refused: dict[str, Published] = {}
        self._said: set[str] = set()
        self._scan_seconds = 0.0

    def step(self) -> Report:
        """Scan once, and write what the rate limit allows.

        Raises:
            StoreUnavailable: the store cannot be reached. Its lease is not renewed, so its objects expire.
            VersionMismatch: the cluster's CRDs are missing, or of another version.
            AccessDenied, ClusterUnavailable, ResourceNotFound: the API cannot be written to.
        """
        store = self._open()
        begin = self._clock()
        try:
            wanted = self._observer.look(store)
        except StoreUnavailable:
            self._let_go()
            raise
        self._scan_seconds = self._clock() - begin
        for note in wanted.notes:
            self._say_once(note)
        self._renew_if_due(store.instance_id)
        if self._known is None or self._clock() - self._read_at > self._bounds.resync_seconds:
            self._known = self._shelf.read()
            self._read_at = self._clock()
            self._refused.clear()
        known = self._known
        targets: dict[str, Published] = {**wanted.locals, **wanted.globals}
        writes = [one for one in plan(targets, known) if not self._is_refused(one)]
        report = Report(wanted=len(targets), left_out=wanted.left_out)
        for index, write in enumerate(writes):
            self._renew_if_due(store.instance_id)
            if self._known is None or not self._pace.take():
                report.waiting = len(writes) - index
                break
            self._write(write, known)
            report.written += 1
        report.refused = len(self._refused)
        if wanted.left_out:
            self._say_once(
                f"{wanted.left_out} objects are not published: at most {self._bounds.max_objects} of a node are, of at "
                f"least {self._bounds.min_bytes} bytes; the largest go first"
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
                raise ClusterUnavailable(f"{after.waiting} changes wait after {seconds:g} s: give more time")
            if after.waiting:
                time.sleep(1 / self._bounds.writes_per_second)

    def run(self, stop: Event) -> None:
        """Publish until stopped. Published resources stay, and expire unless another publisher continues.

        Args:
            stop: set from elsewhere, e.g. by a signal handler.
        """
        pause = self._bounds.scan_seconds
        while not stop.is_set():
            try:
                report = self.step()
            except EntrepotError as error:
                # The cause may be temporary: the store comes back, a role is bound. A later step will find out.
                self._say_once(str(error))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                if pause > self._bounds.scan_seconds:
                    self._said.clear()
                pause = self._bounds.scan_seconds
                if report.written:
                    self._say(
                        f"{report.wanted} resources wanted, {report.written} written, {report.waiting} waiting, "
                        f"{report.refused} refused, {report.left_out} left out"
                    )
            least = self._scan_seconds / SCAN_SHARE
            self._rest(stop, max(pause, least) * random.uniform(0.9, 1.1))
        self.close()

    def keep_alive(self) -> None:
        """Renew the lease if it is due, without scanning all objects.

        Raises:
            StoreUnavailable: the store cannot be reached, and the lease is not renewed.
            AccessDenied, ClusterRefused, ClusterUnavailable: it could not be renewed.
        """
        store = self._open()
        try:
            store.status()
        except StoreUnavailable:
            self._let_go()
            raise
        self._renew_if_due(store.instance_id)

    def _rest(self, stop: Event, seconds: float) -> None:
        """Wait for the next scan, renewing the lease meanwhile if necessary."""
        end = time.monotonic() + seconds
        while not stop.wait(min(end - time.monotonic(), self._bounds.lease_seconds / 3)):
            if time.monotonic() >= end:
                return
            try:
                self.keep_alive()
            except EntrepotError as error:
                self._say_once(str(error))

    def close(self) -> None:
        """Disconnect from the store."""
        self._let_go()

    def _open(self) -> Store:
        if self._store is not None and self._store.closed:
            self._let_go()
        if self._store is None:
            self._store = self._connect()
        return self._store

    def _let_go(self) -> None:
        if self._store is not None:
            store, self._store = self._store, None
            store.close()

    def _renew_if_due(self, instance: str) -> None:
        now = self._clock()
        if self._renewed_at is not None and now - self._renewed_at < self._bounds.lease_seconds / 3:
            return
        # Conservative: the lease started with the request, this time with its response.
        lapsed = self._renewed_at is not None and now - self._renewed_at > 0.8 * self._bounds.lease_seconds
        if self._shelf.renew(instance) or lapsed:
            self._known = None  # others may have marked or deleted objects meanwhile, or these belong to another lease
        self._renewed_at = now

    def _write(self, write: Write, known: dict[str, Published]) -> None:
        one = write.what
        try:
            if write.verb == "apply":
                self._shelf.apply(one)
                known[one.name] = _with_status_of(one, known.get(one.name))
            elif write.verb == "status":
                known[one.name] = self._shelf.tell(one, known[one.name])
            else:
                self._shelf.drop(one)
                del known[one.name]
        except ResourceNotFound:
            if write.verb != "status":
                self._known = None  # the kind was removed: reading again tells which one, and what to do
                raise
            known.pop(one.name, None)  # deleted by somebody else: it is applied again
        except ClusterRefused as error:
            self._refused[one.name] = one
            self._say_once(f"{one.name} is not published: {error}")

    def _is_refused(self, write: Write) -> bool:
        """Whether the same was rejected before; a different object under its name is tried again."""
        if self._refused.get(write.what.name) == write.what:
            return True
        self._refused.pop(write.what.name, None)
        return False

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            if len(self._said) > 1000:
                self._said.clear()
            self._said.add(line)
            self._say(line)


def _with_status_of(one: Published, before: Published | None) -> Published:
    """The API's state after a spec was written: the status is still the old one."""
    if isinstance(one, LocalObject):
        old = before if isinstance(before, LocalObject) else None
        return replace(one, state=old.state if old else None, available=old.available if old else None)
    was = before if isinstance(before, GlobalObject) else None
    return replace(one, complete=was.complete if was else None)
