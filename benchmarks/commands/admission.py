"""``python -m benchmarks admission``: time to create a pod at a real API server that calls the webhook.

The tests' control plane is started, objects are published in it, and the operator runs as a separate process. Pods are
then created at a fixed rate, whether or not earlier ones are done: some without annotations, which are not sent to the
webhook, and some that require objects. The difference is the cost of the webhook and of a larger pod. Judged are the
API server's own wait for the webhook (``apiserver_admission_webhook_admission_duration_seconds``, whose quantiles are
interpolated between few bounds) and the total; the webhook's own measurements are listed beside them. Everything shares
this machine: the client that creates the pods, all parts of the control plane, and the operator.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.figures import quantile
from benchmarks.harness.machine import ROOT, commit, machine
from benchmarks.harness.text import grid, time_text

if TYPE_CHECKING:
    from argparse import _SubParsersAction

GOAL_SECONDS = 0.050  # at the 99th percentile
SOON_SECONDS = 0.025  # a bound of the API server's histogram; the next one is 0.1
SYSTEM = "entrepot-system"
_START_SECONDS = 60.0
_SENDERS = 16


def add_admission(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``admission``."""
    parser = commands.add_parser("admission", help="pods that a real API server makes with the webhook's help")
    parser.add_argument("--rate", type=float, default=50.0, help="pods a second (default 50)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each series (default 20)")
    parser.add_argument(
        "--objects", type=int, nargs="+", default=[1, 10, 100], help="a pod requires (default 1 10 100)"
    )
    parser.add_argument("--published", type=int, default=2000, help="objects in the cluster (default 2000)")
    parser.add_argument("--nodes", type=int, default=20, help="of the cluster (default 20)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    sys.path.insert(0, str(ROOT / "tests" / "kubecp"))
    from control_plane import create_control_plane

    rows: list[dict[str, Any]] = []
    with create_control_plane() as cluster:
        names = [f"node-{place}" for place in range(arguments.nodes)]
        cluster.nodes({name: {"topology.kubernetes.io/zone": f"zone-{place % 3}"} for place, name in enumerate(names)})
        ids = _publish(cluster, names, arguments.published)
        with _operator(cluster) as (process, health):
            chance = random.Random(7)
            for objects in [0, *arguments.objects]:
                series = Series(f"{objects} objects" if objects else "asks for nothing")
                before = _MetricsSnapshot.of(cluster, process.pid, health)
                required = [
                    chance.sample(ids, min(objects, len(ids))) for _ in range(int(arguments.rate * arguments.seconds))
                ]
                _make_pods(cluster, arguments.rate, required, series)
                rows.append(series.row(before, _MetricsSnapshot.of(cluster, process.pid, health)))
    print(_table(rows))
    with_webhook = [row for row in rows if row["asked_p99"] is not None]
    print(f"\np99 at {arguments.rate:g} pods a second; the goal is {time_text(GOAL_SECONDS)}")
    print(_verdict("the webhook, as the API server counts it", max(row["asked_p99"] for row in with_webhook)))
    print(_verdict("the whole making of a pod, as who asks for it sees it", max(row["p99"] for row in with_webhook)))
    for row in rows:
        if row["unasked"]:
            print(f"{row['kind']}: {row['unasked']} pods were made without an answer of the webhook")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "commit": commit(), "rows": rows}, indent=1))
    return 0


def _table(rows: list[dict[str, Any]]) -> str:
    columns = {
        "made, median": "median",
        "made, p99": "p99",
        "webhook asked, mean": "asked_mean",
        "asked, p99": "asked_p99",
        "in the webhook, mean": "webhook_mean",
        "p99 below": "webhook_p99",
        "operator's CPU": "operator_cpu",
    }
    cells = [
        [figures["kind"], str(figures["pods"]), *(time_text(figures[name]) for name in columns.values())]
        for figures in rows
    ]
    for figures, row in zip(rows, cells, strict=True):
        row.insert(6, f"{figures['asked_soon']:.1%}" if figures["asked_soon"] is not None else "")
    head = ["a pod", "pods", *columns]
    head.insert(6, f"within {time_text(SOON_SECONDS)}")
    return grid(head, cells)


def _verdict(what: str, seconds: float) -> str:
    return f"- {what}: {time_text(seconds)}, {'reached' if seconds <= GOAL_SECONDS else 'missed'}"


@dataclass
class Series:
    """Pods of one kind.

    Attributes:
        kind: what they require.
        seconds: from the time each was due to be sent until its response.
        injected: how many came back with a record.
    """

    kind: str
    seconds: list[float] = field(default_factory=list[float])
    injected: int = 0

    def row(self, before: _MetricsSnapshot, after: _MetricsSnapshot) -> dict[str, Any]:
        """The figures."""
        ordered = sorted(self.seconds)
        calls = after.webhook_calls - before.webhook_calls
        reviews = after.reviews_count - before.reviews_count
        return {
            "kind": self.kind,
            "pods": len(ordered),
            "median": quantile(ordered, 0.5),
            "p99": quantile(ordered, 0.99),
            "worst": ordered[-1],
            "asked_mean": (after.webhook_seconds_sum - before.webhook_seconds_sum) / calls if calls else None,
            "asked_p99": after.webhook_seconds.quantile(before.webhook_seconds, 0.99) if calls else None,
            "asked_soon": after.webhook_seconds.share(before.webhook_seconds, SOON_SECONDS) if calls else None,
            "webhook_mean": (after.reviews_sum - before.reviews_sum) / reviews if reviews else None,
            "webhook_p99": after.reviews.bound(before.reviews, 0.99) if reviews else None,
            "operator_cpu": (after.cpu - before.cpu) / len(ordered),
            "unasked": 0 if self.kind.startswith("asks") else len(ordered) - self.injected,
        }


@dataclass
class _MetricsSnapshot:
    """Cumulative counts of API server and webhook."""

    webhook_seconds_sum: float
    webhook_calls: float
    webhook_seconds: _Histogram
    reviews_sum: float
    reviews_count: float
    reviews: _Histogram
    cpu: float

    @classmethod
    def of(cls, cluster: Any, pid: int, health: str) -> _MetricsSnapshot:
        server = str(cluster.request("GET", "/metrics"))
        with urllib.request.urlopen(f"{health}/metrics", timeout=10) as answer:
            own = answer.read().decode()
        metric = "apiserver_admission_webhook_admission_duration_seconds"
        webhook_label = 'name="pods.entrepot.dev"'
        return cls(
            _sum(server, f"{metric}_sum", webhook_label),
            _sum(server, f"{metric}_count", webhook_label),
            _Histogram.of(server, metric, webhook_label),
            _sum(own, "entrepot_admission_seconds_sum"),
            _sum(own, "entrepot_admission_seconds_count"),
            _Histogram.of(own, "entrepot_admission_seconds"),
            _processor_seconds(pid),
        )


@dataclass
class _Histogram:
    """A Prometheus histogram: cumulative counts by bound."""

    counts: dict[float, float]

    @classmethod
    def of(cls, text: str, name: str, having: str = "") -> _Histogram:
        counts: dict[float, float] = {}
        for line in text.splitlines():
            if line.startswith(f"{name}_bucket{{") and having in line:
                bound = float(line.partition('le="')[2].partition('"')[0].replace("+Inf", "inf"))
                counts[bound] = counts.get(bound, 0.0) + float(line.rsplit(" ", 1)[1])
        return cls(counts)

    def since(self, before: _Histogram) -> list[tuple[float, float]]:
        """Bounds and cumulative counts of what was added since ``before``."""
        return [(bound, count - before.counts.get(bound, 0.0)) for bound, count in sorted(self.counts.items())]

    def quantile(self, before: _Histogram, share: float) -> float:
        """Quantile, interpolated between two bounds, as Prometheus does it."""
        low, below = 0.0, 0.0
        counts = self.since(before)
        rank = share * counts[-1][1]
        for bound, count in counts:
            if count >= rank:
                return low + (bound - low) * (rank - below) / (count - below) if bound < float("inf") else low
            low, below = bound, count
        return low

    def bound(self, before: _Histogram, share: float) -> float:
        """The bound below which this share of the additions lies."""
        counts = self.since(before)
        return next(bound for bound, count in counts if count >= share * counts[-1][1])

    def share(self, before: _Histogram, bound: float) -> float:
        """The share of the additions up to ``bound``, which must be one of the bounds."""
        counts = self.since(before)
        return dict(counts)[bound] / counts[-1][1]


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _sum(text: str, name: str, having: str = "") -> float:
    lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")) and having in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def _publish(cluster: Any, nodes: list[str], count: int) -> list[str]:
    """Publish objects of stores on these nodes, each on two of them, with leases that outlast the benchmark."""
    from entrepot_operator import install_manifests
    from fake_publisher import publish, renew

    (namespace,) = install_manifests.objects(only="namespace")
    cluster.apply(cluster.path_of(namespace), namespace)
    cluster.install(install_manifests.objects(only="crds"))
    for node in nodes:
        renew(cluster, SYSTEM, node, 7200)
    chance = random.Random(5)
    ids = [chance.randbytes(20).hex() for _ in range(count)]

    def write(place: int) -> None:
        for node in chance.sample(nodes, min(2, len(nodes))):
            publish(cluster, SYSTEM, ids[place], node, 1 + chance.randrange(1 << 30))

    _in_threads([partial(write, place) for place in range(count)])
    return ids


def _in_threads(tasks: list[Callable[[], None]]) -> None:
    waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    failed: list[BaseException] = []
    for task in tasks:
        waiting.put(task)

    def work() -> None:
        try:
            while not failed:
                waiting.get_nowait()()
        except queue.Empty:
            return
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@contextmanager
def _operator(cluster: Any) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Context with the operator as a process, and the webhook registered; yields the process and the URL of its
    metrics.
    """
    from entrepot_operator import install_manifests

    ports = _free_ports(2)
    manifests = install_manifests.objects(only="webhook")
    for manifest in manifests:
        if manifest["kind"] == "MutatingWebhookConfiguration":
            for each in manifest["webhooks"]:
                path = each["clientConfig"].pop("service")["path"]
                each["clientConfig"]["url"] = f"https://127.0.0.1:{ports[0]}{path}"
        cluster.apply(cluster.path_of(manifest), manifest)
    command = [sys.executable, "-m", "entrepot.cli", "operator", "--kubeconfig", str(cluster.kubeconfig)]
    command += ["--namespace", SYSTEM, "--health-address", "127.0.0.1", "--health-port", str(ports[1])]
    command += ["--webhook-host", "127.0.0.1", "--webhook-port", str(ports[0]), "--webhook-name", "127.0.0.1"]
    process = subprocess.Popen(command)
    health = f"http://127.0.0.1:{ports[1]}"
    try:
        cluster.wait(lambda: _is_ready(process, health), "the operator to be ready", _START_SECONDS)
        probe = _pod(["00" * 20])
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        cluster.wait(lambda: "affinity" in cluster.request("POST", path, probe)["spec"], "the webhook to be called")
        yield process, health
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _is_ready(process: subprocess.Popen[bytes], health: str) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the operator has ended with code {process.returncode}")
    try:
        with urllib.request.urlopen(f"{health}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_ports(count: int) -> list[int]:
    import socket

    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _pod(ids: list[str]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"generateName": "bench-"}
    if ids:
        metadata["annotations"] = {"entrepot.dev/requires": ",".join(ids)}
    containers = [{"name": name, "image": "none", "env": [{"name": "A", "value": "1"}]} for name in "ab"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def _make_pods(cluster: Any, rate: float, required: list[list[str]], series: Series) -> None:
    """Create pods at a fixed rate and delete them afterwards."""
    namespace = cluster.namespace("bench")
    path = f"/api/v1/namespaces/{namespace}/pods"
    bodies = [_pod(ids) for ids in required]
    lock, turn = threading.Lock(), iter(range(len(bodies)))
    begin = time.perf_counter() + 0.5

    def send() -> None:
        while True:
            with lock:
                place = next(turn, None)
            if place is None:
                return
            due = begin + place / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            created = cluster.request("POST", path, bodies[place])
            taken = time.perf_counter() - due
            with lock:
                series.seconds.append(taken)
                series.injected += "entrepot.dev/injected" in created["metadata"].get("annotations", {})

    threads = [threading.Thread(target=send) for _ in range(_SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The next pods must be measured on an idle cluster.
    cluster.request("DELETE", f"/api/v1/namespaces/{namespace}")
    cluster.wait(
        lambda: not cluster.listed("/api/v1/namespaces", fieldSelector=f"metadata.name={namespace}"), "its end"
    )
