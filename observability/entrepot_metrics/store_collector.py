"""A store's status as metrics. No label depends on what users store, so their number is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

Status = dict[str, Any]


class _Sample(NamedTuple):
    """One metric: its name without the prefix, its help, and where the status has it (keys, outermost first)."""

    name: str
    help: str
    path: tuple[str, ...]


_GAUGES = [
    _Sample("capacity_bytes", "Size of the store.", ("capacity_bytes",)),
    _Sample("used_bytes", "Memory of sealed and unsealed objects.", ("used_bytes",)),
    _Sample(
        "committed_bytes",
        "Memory taken from the machine: objects, leases, and what is kept warm.",
        ("committed_bytes",),
    ),
    _Sample("leased_bytes", "Memory leased to writers.", ("leased_bytes",)),
    _Sample("pinned_bytes", "Memory of objects that readers hold, which cannot be evicted.", ("pinned_bytes",)),
    _Sample("warm_bytes", "Free memory that is kept for the next puts.", ("warm_bytes",)),
    _Sample("spilled_bytes", "Objects that are on disk only.", ("spilled_bytes",)),
    _Sample("spill_disk_bytes", "Disk space of spill files.", ("spill", "disk_bytes")),
    _Sample("spill_quota_bytes", "Limit of spill_disk_bytes.", ("spill", "quota_bytes")),
    _Sample("spill_pending_writes", "Objects that wait for being written to disk.", ("spill", "pending_writes")),
    _Sample("spill_pending_reads", "Objects that wait for being read from disk.", ("spill", "pending_reads")),
    _Sample("objects", "Sealed objects.", ("objects",)),
    _Sample("sessions", "Sessions.", ("sessions",)),
    _Sample("names", "Names of objects.", ("names",)),
    _Sample("waiting_requests", "Requests that wait for an object, a name or memory.", ("waiting",)),
    _Sample("deleted_in_use", "Objects that were deleted and are still being read.", ("deferred_frees",)),
    _Sample("reserved_bytes", "Memory that tasks have reserved.", ("reservations", "bytes")),
    _Sample("uptime_seconds", "Time since the daemon was started.", ("uptime_seconds",)),
]
_COUNTERS = [
    _Sample("evictions", "Objects that were moved out of memory.", ("spill", "evictions")),
    _Sample("evicted_bytes", "Bytes of these.", ("spill", "evicted_bytes")),
    _Sample("loads", "Objects that were read back from disk.", ("spill", "loads")),
    _Sample("loads_ahead", "Of these, before somebody asked for them.", ("spill", "loads_ahead")),
    _Sample("loaded_bytes", "Bytes of loads.", ("spill", "loaded_bytes")),
    _Sample("spill_written_bytes", "Bytes written to spill files.", ("spill", "written_bytes")),
    _Sample("spill_read_bytes", "Bytes read from spill files.", ("spill", "read_bytes")),
    _Sample(
        "spill_failed_writes", "Writes to spill files that failed; they are tried again.", ("spill", "failed_writes")
    ),
    _Sample("spill_failed_reads", "Reads of spill files that failed.", ("spill", "failed_reads")),
    _Sample("drops", "Objects that a policy allowed to drop, and that were.", ("drops",)),
    _Sample("dropped_bytes", "Bytes of these.", ("drops_bytes",)),
    _Sample("log_lines_dropped", "Lines that the daemon's log could not take.", ("log_lines_dropped",)),
]


class StoreCollector(Collector):
    """What Prometheus gets to see of a store.

    Args:
        status: returns its status; None: it does not answer. Then ``entrepot_up`` is 0, and nothing else is said.
    """

    def __init__(self, status: Callable[[], Status | None]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        status = self._status()
        yield GaugeMetricFamily("entrepot_up", "Whether the store answers.", value=int(status is not None))
        if status is None:
            return
        # Not "instance": this is Prometheus' own label for what it scrapes.
        info = {"version": str(status["version"]), "host": str(status["host"]), "id": str(status["instance"])}
        yield InfoMetricFamily("entrepot_store", "The store.", value=info)
        for sample in _GAUGES:
            yield GaugeMetricFamily(f"entrepot_{sample.name}", sample.help, value=_at(status, sample.path))
        for sample in _COUNTERS:
            yield CounterMetricFamily(f"entrepot_{sample.name}", sample.help, value=_at(status, sample.path))
        # The first daemon of a store has the number 1.
        restarts = status["incarnation"] - 1
        yield CounterMetricFamily(
            "entrepot_daemon_restarts", "Daemons that were started in a dead one's place.", value=restarts
        )
        clients = [client for client in status["clients"] if client["connected"]]
        yield GaugeMetricFamily("entrepot_clients", "Connected clients.", value=len(clients))
        for state in ("granted", "waiting"):
            yield GaugeMetricFamily(
                f"entrepot_reservations_{state}",
                f"Reservations of tasks: {state}.",
                value=len(status["reservations"][state]),
            )
        yield GaugeMetricFamily("entrepot_streams", "Streams.", value=len(status["streams"]))
        gateway = int(bool(status["gateway"]["serves"]))
        yield GaugeMetricFamily("entrepot_gateway_up", "Whether a gateway to other hosts serves.", value=gateway)


def _at(status: Status, path: tuple[str, ...]) -> float:
    if path[0] == "spill" and not status["spill"]["enabled"]:
        return 0.0  # a store without a disk says nothing about it
    value: Any = status
    for key in path:
        value = value[key]
    return float(value)
