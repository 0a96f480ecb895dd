"""The operator's metrics, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Summary, disable_created_metrics

# When a series began: Prometheus' text format could only write that as gauges of their own, twice as many numbers.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The operator's counters, in a registry of their own. Thread-safe.

    Attributes:
        registry: of everything that ``/metrics`` shows. What has numbers of its own registers itself as a collector.
        work: keys processed, by their kind and the result.
        work_seconds: the time that took, by kind.
        labels: changes of a node's label.
        gates_lifted: held pods that were released, by reason.
        sweeps: searches for what lost nodes left behind.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.work = Counter(
            "entrepot_operator_work",
            "Resources that the leader processed, by their kind and the result.",
            ["kind", "result"],
            registry=self.registry,
        )
        self.work_seconds = Summary(
            "entrepot_operator_work_seconds",
            "Seconds that the leader took to process a resource, by its kind.",
            ["kind"],
            registry=self.registry,
        )
        self.labels = Counter(
            "entrepot_operator_labels",
            "Changes of the label of a node, by its new value.",
            ["to"],
            registry=self.registry,
        )
        self.gates_lifted = Counter(
            "entrepot_operator_gates_lifted",
            "Held pods that were released, by the reason.",
            ["reason"],
            registry=self.registry,
        )
        self.sweeps = Counter(
            "entrepot_operator_sweeps",
            "Searches for objects and leases that lost nodes left behind.",
            registry=self.registry,
        )
