"""Stores of a cluster in Kubernetes: each pod's gateway, run as its container says, beside a real store."""

from __future__ import annotations

import base64
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_cluster.directory import Directory
from entrepot_operator.controller.state import owned_resources, pod_account
from entrepot_operator.kubernetes.objects import resource_path
from entrepot_operator.kubernetes.store_spec import parse_store
from paired_nodes import PairedNode, paired_nodes

NODES = ("gw-a", "gw-b")
PATIENCE_SECONDS = 60.0


def put_store(cluster: Any, namespace: str, name: str, port: int) -> None:
    """Create a Store with gateways, and what the operator makes of it."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shared"}, "stringData": {"token": "s" * 32}}
    cluster.apply(f"/api/v1/namespaces/{namespace}/secrets/shared", secret)
    spec = {
        "image": "entrepot:1",
        "capacity": "64Mi",
        "nodeSelector": {"pool": "gw"},
        "cluster": {
            "directory": f"kubernetes:///{name}",
            "tokenSecret": {"name": "shared"},
            "port": port,
            "options": ["--lease-seconds=300"],  # longer than this machine may be busy with something else
        },
    }
    manifest = {"apiVersion": "entrepot.dev/v1alpha1", "kind": "Store", "metadata": {"name": "main"}, "spec": spec}
    store = cluster.apply(resource_path("stores", namespace, "main"), manifest)
    owned = [
        *pod_account.pod_account(namespace, [store], [store]),
        owned_resources.daemonset(store, parse_store(store)),
    ]
    for each in owned:
        cluster.apply(each.path, each.manifest)


class PodGateway:
    """What a kubelet would do with the gateway's container of a pod.

    Args:
        cluster: the control plane.
        pod: as the API returned it.
        node: where it was scheduled, with its store.
        address: the pod's.
        folder: for its Secrets and its log.
    """

    def __init__(self, cluster: Any, pod: dict[str, Any], node: PairedNode, address: str, folder: Path) -> None:
        (container,) = [each for each in pod["spec"]["containers"] if each["name"] == "gateway"]
        namespace = pod["metadata"]["namespace"]
        fields = {"spec.nodeName": node.name, "status.podIP": address}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ENTREPOT_")}
        own = {
            each["name"]: each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in container["env"]
        }
        own["ENTREPOT_ADDRESS"] = node.address  # as the mount of the socket's folder would map it
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        if "account" in mounts:
            own["KUBECONFIG"] = str(cluster.kubeconfig_of(namespace, pod["spec"]["serviceAccountName"], pod=pod))
        replaced = {}
        for volume in pod["spec"]["volumes"]:
            if "secret" in volume and volume["name"] in mounts:
                replaced[mounts[volume["name"]]] = str(self._write_secret(cluster, namespace, volume, folder))
        arguments = [re.sub(r"\$\((\w+)\)", lambda match: own[match[1]], text) for text in container["args"]]
        for path, local in replaced.items():
            arguments = [text.replace(path, local) for text in arguments]
        assert container["command"][0] == "entrepot"
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "entrepot", *container["command"][1:], *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=inherited | own,
            )

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text(errors="replace")

    def end(self) -> int:
        """End it as a kubelet does; returns its exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)

    @staticmethod
    def _write_secret(cluster: Any, namespace: str, volume: dict[str, Any], folder: Path) -> Path:
        name = volume["secret"]["secretName"]
        data = cluster.request("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")["data"]
        target = folder / str(volume["name"])
        target.mkdir()
        for item in volume["secret"].get("items") or [{"key": key, "path": key} for key in data]:
            file = target / item["path"]
            file.write_bytes(base64.b64decode(data[item["key"]]))
            file.chmod(volume["secret"]["defaultMode"])
        return target


@pytest.fixture(scope="module")
def nodes(entrepot_cluster: Any, namespace: str) -> Iterator[dict[str, PairedNode]]:
    """Nodes with a real store each."""
    with paired_nodes(entrepot_cluster, {node: {"pool": "gw"} for node in NODES}, namespace) as running:
        yield running


def store_pods(cluster: Any, namespace: str) -> dict[str, dict[str, Any]]:
    """The pods of the stores by node, as soon as there is one on each."""
    pod_by_node: dict[str, dict[str, Any]] = {}

    def all_placed() -> bool:
        pods = cluster.listed(f"/api/v1/namespaces/{namespace}/pods", labelSelector="app.kubernetes.io/instance=main")
        pod_by_node.update({pod["spec"]["nodeName"]: pod for pod in pods if pod["spec"].get("nodeName")})
        return set(pod_by_node) >= set(NODES)

    cluster.wait(all_placed, "the stores' pods to be placed")
    return pod_by_node


def free_port(addresses: list[str]) -> int:
    """A port that is free at all addresses."""
    while True:
        with socket.socket() as first:
            first.bind((addresses[0], 0))
            port = int(first.getsockname()[1])
            try:
                for address in addresses[1:]:
                    with socket.socket() as other:
                        other.bind((address, port))
            except OSError:
                continue
            return port


def test_two_stores_find_each_others_objects(
    entrepot_cluster: Any,
    namespace: str,
    name: str,
    nodes: dict[str, PairedNode],
    open_it: Callable[..., Directory],
    tmp_path: Path,
    wait_until: Callable[..., None],
) -> None:
    addresses = [f"127.0.0.{number}" for number in range(2, 2 + len(NODES))]
    put_store(entrepot_cluster, namespace, name, free_port(addresses))
    pods = store_pods(entrepot_cluster, namespace)
    gateways: dict[str, PodGateway] = {}
    try:
        for node, address in zip(NODES, addresses, strict=True):
            folder = tmp_path / node
            folder.mkdir()
            gateways[node] = PodGateway(entrepot_cluster, pods[node], nodes[node], address, folder)
        directory = open_it()

        def live() -> list[str]:
            for gateway in gateways.values():
                assert gateway.process.poll() is None, gateway.log
            return [instance.host for instance in directory.instances() if instance.live]

        wait_until(lambda: live() == [*NODES], "both gateways to register")
        with entrepot.connect(nodes["gw-a"].address) as here, entrepot.connect(nodes["gw-b"].address) as elsewhere:
            values = np.arange(100_000)
            oid = here.put(values, name="numbers")
            wait_until(lambda: here.status()["gateway"] and elsewhere.status()["gateway"], "the gateways to serve")
            here.publish(oid, timeout=PATIENCE_SECONDS)
            assert np.array_equal(elsewhere.get(oid, timeout=PATIENCE_SECONDS), values)
            assert np.array_equal(elsewhere.get_by_name("numbers", timeout=PATIENCE_SECONDS), values)
            back = elsewhere.put(b"the other way")
            elsewhere.publish(back, timeout=PATIENCE_SECONDS)
            assert here.get(back, timeout=PATIENCE_SECONDS) == b"the other way"
            assert {place.instance.host for place in directory.places([oid.binary])[0].entries} >= {"gw-a"}
        assert gateways.pop("gw-a").end() == 0
        wait_until(lambda: [instance.host for instance in directory.instances()] == ["gw-b"], "the first one to leave")
    finally:
        for gateway in gateways.values():
            gateway.end()
