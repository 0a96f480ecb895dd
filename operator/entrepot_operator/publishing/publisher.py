"""The loop: look at the store, renew the lease, write what differs, at a bounded rate."""

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

# A look takes time of the daemon, which the tasks need: at most this part of it.
SCAN_SHARE = 0.05
LONGEST_PAUSE_SECONDS = 15.0


@dataclass
class Report:
    """What one step did.

    Attributes:
        wanted: how many resources the API should have.
        written: requests that changed something.
        waiting: changes that the rate puts off.
        refused: resources that the API server will not have.
        left_out: objects that exceed the bounds.
    """

    wanted: int = 0
    written: int = 0
    waiting: int = 0
    refused: int = 0
    left_out: int = 0


class Publisher:
    """Tells the API of one cluster what the store of one node holds.

    Args:
        api: the cluster's.
        connect: connects to the store; called again after the store was away.
        origin: whose objects these are.
        namespace: where they go.
        bounds: how much, how fast.
        say: takes a line for people.
        clock: seconds that only grow.
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
        """Look once, and write what the rate allows.

        Raises:
            StoreUnavailable: the store cannot be reached. Its lease is not renewed, so that its objects expire.
            VersionMismatch: the cluster's CRDs are of another version, or not there.
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
        """Step until nothing waits any more.

        Args:
            seconds: after which it gives up.

        Raises:
            ClusterUnavailable: it took longer. As :meth:`step` besides.
        """
        end = self._clock() + seconds
        total = self.step()
        # The statuses of what was just written are the next step's.
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
        """Publish until told to stop. What was published stays: it expires unless somebody goes on.

        Args:
            stop: set from elsewhere, as by a signal.
        """
        pause = self._bounds.scan_seconds
        while not stop.is_set():
            try:
                report = self.step()
            except EntrepotError as error:
                # The cause may go: the store comes back, a role is bound. A later step finds that out.
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
        """Renew the lease if it is time, without a look at all objects.

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
        """Wait for the next look; where that is far, the lease is renewed meanwhile."""
        end = time.monotonic() + seconds
        while not stop.wait(min(end - time.monotonic(), self._bounds.lease_seconds / 3)):
            if time.monotonic() >= end:
                return
            try:
                self.keep_alive()
            except EntrepotError as error:
                self._say_once(str(error))

    def close(self) -> None:
        """Let go of the store."""
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
        # Counted generously: the lease began with the request, and this with its answer.
        lapsed = self._renewed_at is not None and now - self._renewed_at > 0.8 * self._bounds.lease_seconds
        if self._shelf.renew(instance) or lapsed:
            self._known = None  # others may have marked or removed objects meanwhile, or these belong to another lease
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
                self._known = None  # the kind went: what is read anew says which, and what to do
                raise
            known.pop(one.name, None)  # somebody removed it: it is applied again
        except ClusterRefused as error:
            self._refused[one.name] = one
            self._say_once(f"{one.name} is not published: {error}")

    def _is_refused(self, write: Write) -> bool:
        """Whether the same was refused before; something else under its name is tried."""
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
    """What the API has after a spec was written: the status is still the one before."""
    if isinstance(one, LocalObject):
        old = before if isinstance(before, LocalObject) else None
        return replace(one, state=old.state if old else None, available=old.available if old else None)
    was = before if isinstance(before, GlobalObject) else None
    return replace(one, complete=was.complete if was else None)
