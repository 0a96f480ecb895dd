"""The complete operator: watchers, election, the leader's work and health, each in threads of their own."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from resource import getpagesize

from entrepot.errors import EntrepotError
from entrepot_io.cluster.api import Api

from entrepot_operator.controller.health import HealthServer
from entrepot_operator.controller.knowledge import ACCOUNT, GATE, LABEL, STATUS, STORE, SWEEP, Key, Knowledge, Known
from entrepot_operator.controller.leading import Election, Elector
from entrepot_operator.controller.lines import facts
from entrepot_operator.controller.metrics import Metrics, Sample
from entrepot_operator.controller.queue import WorkQueue
from entrepot_operator.controller.settings import Settings
from entrepot_operator.controller.working import Work

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 3.0  # for a request of the leader: shorter than its lease
TICK_SECONDS = 0.5
STATUS_SECONDS = 5.0
STUCK_SECONDS = 120.0


class Operator:
    """One replica of the operator.

    Args:
        settings: its configuration.
        connect: creates a connection for one thread; takes the seconds for which requests are retried.
    """

    def __init__(self, settings: Settings, connect: Callable[[float], Api]) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._queue: WorkQueue[Key] = WorkQueue()
        self._stop = threading.Event()
        self._begin = threading.Event()
        self._beat = time.monotonic()
        election = Election(
            settings.namespace, settings.identity, seconds=settings.lease_seconds, installation=settings.installation
        )
        self._elector = Elector(election, connect(0), self._leads)
        self.knowledge = Knowledge(
            settings.namespace,
            lambda: connect(0),
            self._queue,
            self._elector.now,
            settings.gates,
            settings.manager_of_labels,
        )
        self.known = Known(self.knowledge)
        self._work = Work(
            settings, self.knowledge, self._queue, connect(PATIENCE_SECONDS), self._elector.now, self.metrics
        )
        self._more_ready: list[Callable[[], list[str]]] = []
        self._worker = threading.Thread(target=self._run, name="work", daemon=True)
        self._ticker = threading.Thread(target=self._tick, name="tick", daemon=True)
        self.metrics.add_source(self._samples)
        self.health = HealthServer(settings.host, settings.port, self.unwell, self.unready, self.metrics.text)

    def start(self) -> None:
        """Start all threads."""
        self.knowledge.start()
        self._elector.start()
        self._worker.start()
        self._ticker.start()

    def stop(self) -> None:
        """Stop, and release the lease so that another replica takes over at once."""
        self._stop.set()
        self._worker.join(2 * PATIENCE_SECONDS)
        self._ticker.join(2 * TICK_SECONDS)
        self._elector.stop()
        self.knowledge.stop()
        self._work.close()
        self.health.close()

    def leading(self) -> bool:
        """Whether this replica acts."""
        return self._elector.leading()

    def add_ready(self, ask: Callable[[], list[str]]) -> None:
        """Add a readiness check; it returns what is wrong, or nothing."""
        self._more_ready.append(ask)

    def unwell(self) -> list[str]:
        """Problems that only a restart of the process fixes."""
        wrong = [f"the watcher of {name} has ended" for name, one in self.knowledge.watchers.items() if not one.alive]
        if not self._elector.alive:
            wrong.append("the election has ended")
        if not self._worker.is_alive() or not self._ticker.is_alive():
            wrong.append("the work has ended")
        elif time.monotonic() - self._beat > STUCK_SECONDS:
            wrong.append(f"the work has been at one thing for more than {STUCK_SECONDS:g} s")
        return wrong

    def unready(self) -> list[str]:
        """What is not ready yet, or cannot be reached now."""
        wrong = [f"{name} were not read yet" for name, one in self.knowledge.watchers.items() if not one.synced]
        wrong += [one.message for one in self.knowledge.problems()]
        if self._elector.foreign:
            wrong.append(self._elector.foreign)
        for ask in self._more_ready:
            wrong += ask()
        return wrong

    def _leads(self, leading: bool) -> None:
        log.info("this replica %s", "leads" if leading else "does not lead any more", extra=facts(leading=leading))
        if leading:
            self._begin.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._beat = time.monotonic()
            if not self._elector.leading():
                self._stop.wait(TICK_SECONDS / 5)
                continue
            if self._begin.is_set():
                self._begin.clear()
                self._work.begin()
                self.knowledge.look_at_all(STORE, LABEL, GATE, ACCOUNT, SWEEP)
            key = self._queue.take(TICK_SECONDS)
            if key is None:
                continue
            if not self._elector.leading():
                self._queue.add(key)
            elif key[0] != GATE and not self.knowledge.watchers["stores"].synced:
                self._queue.add(key, TICK_SECONDS)  # needs Stores; gates are exempt: pods time out
            else:
                self._do(key)

    def _do(self, key: Key) -> None:
        begin = time.monotonic()
        try:
            self._work.do(key)
        except EntrepotError as error:
            pause = self._queue.failed(key)
            result = "failed"
            log.warning(
                "%s %s: %s", *key, error, extra=facts(kind=key[0], name=key[1], code=error.code, again_seconds=pause)
            )
        except Exception:
            # An internal error with one key must not block the others.
            pause = self._queue.failed(key)
            result = "fault"
            log.exception("%s %s", *key, extra=facts(kind=key[0], name=key[1], again_seconds=pause))
        else:
            self._queue.succeeded(key)
            result = "done"
        self.metrics.count("entrepot_operator_work_total", kind=key[0], result=result)
        self.metrics.count("entrepot_operator_work_seconds_sum", time.monotonic() - begin, kind=key[0])
        self.metrics.count("entrepot_operator_work_seconds_count", kind=key[0])

    def _tick(self) -> None:
        statuses, resync = time.monotonic(), time.monotonic()
        settled = False
        while not self._stop.wait(TICK_SECONDS):
            if not settled and self.knowledge.synced:
                settled = True
                # Most objects that exist now are permanent; scanning them again and again for garbage would pause the
                # webhook each time. Those released anyway are freed by reference counting.
                gc.collect()
                gc.freeze()
            self.knowledge.look_at_leases()
            now = time.monotonic()
            if now - statuses > STATUS_SECONDS:
                statuses = now
                self.knowledge.look_at_all(STATUS)
            if now - resync > self.settings.resync_seconds:
                resync = now
                self.knowledge.look_at_all(STORE, LABEL, GATE, ACCOUNT)

    def _samples(self) -> Iterator[Sample]:
        knowledge = self.knowledge
        yield "entrepot_operator_leading", {}, float(self._elector.leading())
        yield "entrepot_operator_queue_length", {}, len(self._queue)
        yield "entrepot_operator_index_objects", {}, len(knowledge.index)
        yield "entrepot_operator_index_unreadable_total", {}, knowledge.index.unreadable
        yield "entrepot_operator_gates_held", {}, len(knowledge.gated.all())
        for name, one in knowledge.watchers.items():
            yield "entrepot_operator_watch_connected", {"resource": name}, float(one.connected_for() > 0)
            yield "entrepot_operator_watch_restarts_total", {"resource": name}, one.restarts
        yield "process_resident_memory_bytes", {}, resident_bytes()


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * getpagesize()
