"""End to end: shipped manifests are installed, the operator runs as a process with its rights, a store publishes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_operator import install_manifests
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from entrepot_operator.publisher.limits import Limits
from entrepot_operator.publisher.main import Publisher
from entrepot_operator.publisher.snapshot import PublisherIdentity

NODES = ("installed-a", "installed-b")
LATER = ("Namespace", "CustomResourceDefinition", "Deployment", "PodDisruptionBudget")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture
def cluster(entrepot_cluster: Any) -> Iterator[Any]:
    with entrepot_cluster.some_nodes({name: {} for name in NODES}):
        yield entrepot_cluster


def test_the_installed_operator_draws_pods_to_what_a_store_published(cluster: Any, daemon: Any, tmp_path: Path) -> None:
    system, team = cluster.namespace("installed"), cluster.namespace("team")
    label = {"metadata": {"labels": {"installed-test": system}}}
    cluster.request("PATCH", f"/api/v1/namespaces/{team}", label, kind="application/merge-patch+json")
    port, health = free_port(), free_port()
    shipped = [manifest for manifest in install_manifests.objects(namespace=system) if manifest["kind"] not in LATER]
    for manifest in shipped:
        if manifest["kind"] == "MutatingWebhookConfiguration":
            for each in manifest["webhooks"]:
                path = each["clientConfig"].pop("service")["path"]
                each["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
                only = {"key": "installed-test", "operator": "In", "values": [system]}
                each["namespaceSelector"]["matchExpressions"].append(only)
        cluster.apply(cluster.path_of(manifest), manifest)
    account = cluster.kubeconfig_of(system, "entrepot-operator")
    command = [sys.executable, "-m", "entrepot.cli", "operator", "--kubeconfig", str(account), "--namespace", system]
    command += ["--health-address", "127.0.0.1", "--health-port", str(health)]
    command += ["--webhook-host", "127.0.0.1", "--webhook-port", str(port), "--webhook-name", "127.0.0.1"]
    log = tmp_path / "operator.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file)
    api = Api(find(str(cluster.kubeconfig)))
    limits = Limits(burst=1000)
    publisher = Publisher(
        api, lambda: entrepot.connect(daemon.address), PublisherIdentity(NODES[1], "main"), system, limits
    )
    try:

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{health}/readyz", timeout=5) as answer:
                    return bool(answer.status == 200)
            except (urllib.error.URLError, ConnectionError):
                return False

        cluster.wait(ready, "the operator to be ready", 60)
        with entrepot.connect(daemon.address) as store:
            oid = str(store.put(np.zeros(100_000, np.uint8), name="orders"))
            publisher.publish_all(60)
        pod = {
            "metadata": {"generateName": "reads-", "annotations": {"entrepot.dev/requires": oid}},
            "spec": {"containers": [{"name": "main", "image": "none"}]},
        }
        pods = f"/api/v1/namespaces/{team}/pods"

        def drawn() -> bool:
            created = cluster.request("POST", f"{pods}?dryRun=All", pod)
            return NODES[1] in str(created["spec"].get("affinity"))

        cluster.wait(drawn, "the operator to hear of the object", 60)
        name = cluster.request("POST", pods, pod)["metadata"]["name"]
        assert cluster.bound(team, [name]) == {name: NODES[1]}
        with urllib.request.urlopen(f"http://127.0.0.1:{health}/metrics", timeout=5) as answer:
            metrics = answer.read().decode()
        assert 'entrepot_admission_reviews_total{result="injected"}' in metrics
        assert "entrepot_webhook_certificate_end_seconds" in metrics
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)
        publisher.close()
        for manifest in shipped:
            if not manifest["metadata"].get("namespace"):
                cluster.request("DELETE", cluster.path_of(manifest))
