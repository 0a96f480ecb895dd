"""The complete operator: informers, election, the leader's work and health, each in threads of their own."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from resource import getpagesize

from entrepot.errors import EntrepotError
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from entrepot_operator.controller.cache.cluster_cache import (
    ACCOUNT,
    GATE,
    LABEL,
    STATUS,
    STORE,
    SWEEP,
    ClusterCache,
    IndexReader,
    Key,
)
from entrepot_operator.controller.leader_election import ElectionConfig, LeaderElector
from entrepot_operator.controller.monitoring.health import HealthServer
from entrepot_operator.controller.monitoring.json_logging import log_fields
from entrepot_operator.controller.monitoring.metrics import Metrics
from entrepot_operator.controller.reconciler import Reconciler
from entrepot_operator.controller.settings import Settings
from entrepot_operator.controller.work_queue import WorkQueue
from entrepot_operator.kubernetes.api import Api

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 3.0  # for a request of the leader: shorter than its lease
TICK_SECONDS = 0.5
STATUS_INTERVAL_SECONDS = 5.0
STUCK_SECONDS = 120.0


class Operator(Collector):
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
        self._became_leader = threading.Event()
        self._last_heartbeat = time.monotonic()
        election_config = ElectionConfig(
            settings.namespace,
            settings.identity,
            lease_seconds=settings.lease_seconds,
            installation=settings.installation,
        )
        self._elector = LeaderElector(election_config, connect(0), self._on_leadership_change)
        self.cache = ClusterCache(
            settings.namespace,
            lambda: connect(0),
            self._queue,
            self._elector.now,
            settings.gates,
            settings.label_manager,
        )
        self.index_reader = IndexReader(self.cache)
        self._reconciler = Reconciler(
            settings, self.cache, self._queue, connect(PATIENCE_SECONDS), self._elector.now, self.metrics
        )
        self._readiness_checks: list[Callable[[], list[str]]] = []
        self._worker = threading.Thread(target=self._run, name="work", daemon=True)
        self._ticker = threading.Thread(target=self._tick, name="tick", daemon=True)
        self.metrics.registry.register(self)
        self.health = HealthServer(
            settings.host, settings.port, self.liveness_problems, self.readiness_problems, self.metrics.registry
        )

    def start(self) -> None:
        """Start all threads."""
        self.cache.start()
        self._elector.start()
        self._worker.start()
        self._ticker.start()

    def stop(self) -> None:
        """Stop, and release the lease so that another replica takes over at once."""
        self._stop.set()
        self._worker.join(2 * PATIENCE_SECONDS)
        self._ticker.join(2 * TICK_SECONDS)
        self._elector.stop()
        self.cache.stop()
        self._reconciler.close()
        self.health.close()

    def leading(self) -> bool:
        """Whether this replica acts."""
        return self._elector.leading()

    def add_readiness_check(self, check: Callable[[], list[str]]) -> None:
        """Add a readiness check; it returns what is wrong, or nothing."""
        self._readiness_checks.append(check)

    def liveness_problems(self) -> list[str]:
        """Problems that only a restart of the process fixes."""
        problems = [
            f"the watcher of {name} has stopped"
            for name, informer in self.cache.informers.items()
            if not informer.alive
        ]
        if not self._elector.alive:
            problems.append("the leader election has stopped")
        if not self._worker.is_alive() or not self._ticker.is_alive():
            problems.append("the reconciler has stopped")
        elif time.monotonic() - self._last_heartbeat > STUCK_SECONDS:
            problems.append(f"the reconciler has been stuck on one item for more than {STUCK_SECONDS:g} s")
        return problems

    def readiness_problems(self) -> list[str]:
        """Reasons why the operator is not ready."""
        informers = self.cache.informers
        problems = [f"{name} have not been read yet" for name, informer in informers.items() if not informer.synced]
        problems += [failure.message for failure in self.cache.problems()]
        if self._elector.foreign_installation:
            problems.append(self._elector.foreign_installation)
        for check in self._readiness_checks:
            problems += check()
        return problems

    def _on_leadership_change(self, leading: bool) -> None:
        log.info(
            "this replica %s", "now leads" if leading else "is no longer the leader", extra=log_fields(leading=leading)
        )
        if leading:
            self._became_leader.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._last_heartbeat = time.monotonic()
            if not self._elector.leading():
                self._stop.wait(TICK_SECONDS / 5)
                continue
            if self._became_leader.is_set():
                self._became_leader.clear()
                self._reconciler.reset()
                self.cache.enqueue_all(STORE, LABEL, GATE, ACCOUNT, SWEEP)
            key = self._queue.take(TICK_SECONDS)
            if key is None:
                continue
            if not self._elector.leading():
                self._queue.add(key)
            elif key[0] != GATE and not self.cache.informers["stores"].synced:
                self._queue.add(key, TICK_SECONDS)  # needs Stores; gates are exempt: pods time out
            else:
                self._process(key)

    def _process(self, key: Key) -> None:
        begin = time.monotonic()
        try:
            self._reconciler.reconcile(key)
        except EntrepotError as error:
            pause = self._queue.retry(key)
            result = "failed"
            log.warning(
                "%s %s: %s",
                *key,
                error,
                extra=log_fields(kind=key[0], name=key[1], code=error.code, again_seconds=pause),
            )
        except Exception:
            # An internal error with one key must not block the others.
            pause = self._queue.retry(key)
            result = "fault"
            log.exception("%s %s", *key, extra=log_fields(kind=key[0], name=key[1], again_seconds=pause))
        else:
            self._queue.reset_backoff(key)
            result = "done"
        self.metrics.work.labels(key[0], result).inc()
        self.metrics.work_seconds.labels(key[0]).observe(time.monotonic() - begin)

    def _tick(self) -> None:
        last_status, last_resync = time.monotonic(), time.monotonic()
        frozen = False
        while not self._stop.wait(TICK_SECONDS):
            if not frozen and self.cache.synced:
                frozen = True
                # Most objects that exist now are permanent; scanning them again and again for garbage would pause the
                # webhook each time. Those released anyway are freed by reference counting.
                gc.collect()
                gc.freeze()
            self.cache.enqueue_lease_changes()
            now = time.monotonic()
            if now - last_status > STATUS_INTERVAL_SECONDS:
                last_status = now
                self.cache.enqueue_all(STATUS)
            if now - last_resync > self.settings.resync_seconds:
                last_resync = now
                self.cache.enqueue_all(STORE, LABEL, GATE, ACCOUNT)

    def collect(self) -> Iterator[Metric]:
        """Yield the current values at a scrape (Prometheus' collector interface); ``metrics`` has the counters."""
        cache = self.cache
        yield GaugeMetricFamily(
            "entrepot_operator_leading", "Whether this replica is the leader, which acts.", self._elector.leading()
        )
        yield GaugeMetricFamily(
            "entrepot_operator_queue_length", "Resources that wait to be processed.", len(self._queue)
        )
        yield GaugeMetricFamily("entrepot_operator_index_objects", "Published objects in the index.", len(cache.index))
        yield CounterMetricFamily(
            "entrepot_operator_index_unreadable",
            "Published objects that could not be read.",
            cache.index.unreadable,
        )
        yield GaugeMetricFamily(
            "entrepot_operator_gates_held", "Pods that wait for their objects.", len(cache.gated_pods.all())
        )
        connected = GaugeMetricFamily(
            "entrepot_operator_watch_connected", "Whether the watch of a resource is connected.", labels=["resource"]
        )
        restarts = CounterMetricFamily(
            "entrepot_operator_watch_restarts", "Restarts of the watch of a resource.", labels=["resource"]
        )
        for name, informer in cache.informers.items():
            connected.add_metric([name], informer.connected_for() > 0)
            restarts.add_metric([name], informer.restarts)
        yield connected
        yield restarts
        yield GaugeMetricFamily(
            "process_resident_memory_bytes", "Resident memory of this process in bytes.", resident_bytes()
        )


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * getpagesize()
