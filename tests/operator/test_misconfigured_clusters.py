"""Clusters that are not as they should be: without our CRDs, with other versions of them, without rights.

On a real API server: commands fail with a typed error that names the remedy, long-running processes recover once the
cluster is repaired, and no pod is held forever.
"""

from __future__ import annotations

import copy
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.cli import main
from entrepot_operator import crds, install_manifests
from entrepot_operator.kubernetes.objects import lease_path, resource_path

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GATE = "entrepot.dev/objects"


class Program:
    """A long-running subcommand."""

    def __init__(self, log: Path, *words: str) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen([sys.executable, "-m", "entrepot.cli", *words], stdout=file, stderr=file)

    def output(self) -> str:
        return self._log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """The lines of its log that are JSON."""
        return [json.loads(line) for line in self.output().splitlines(keepends=True) if line.endswith("}\n")]

    def runs(self) -> bool:
        return self.process.poll() is None

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """``start(subcommand, *arguments)``: start a subcommand, which is ended after the test."""
    started: list[Program] = []

    def run(*words: str) -> Program:
        started.append(Program(tmp_path / f"{words[0]}-{len(started)}.log", *words))
        return started[-1]

    yield run
    for program in started:
        if program.runs():
            program.process.kill()
            program.process.wait(30)


@contextmanager
def without_crds(cluster: Any) -> Iterator[str]:
    """Remove our CRDs from the cluster; yields the expected error text."""
    for definition in crds.definitions():
        cluster.request("DELETE", f"{DEFINITIONS}/{definition['metadata']['name']}")
    cluster.wait(lambda: not served_versions(cluster), "our kinds to be gone")
    try:
        yield "has no resources of entrepot.dev: install them with 'entrepot crds | kubectl apply --server-side -f -'"
    finally:
        cluster.install(crds.definitions())


@contextmanager
def with_later_crds(cluster: Any) -> Iterator[str]:
    """Install a later version of our CRDs that no longer serves ours; yields the expected error text."""
    for definition in crds.definitions():
        later = copy.deepcopy(definition)
        (version,) = later["spec"]["versions"]
        version["served"] = False
        later["spec"]["versions"].append({**copy.deepcopy(version), "name": "v2", "served": True, "storage": False})
        cluster.apply(f"{DEFINITIONS}/{definition['metadata']['name']}", later)
    cluster.wait(lambda: served_versions(cluster) == {"v2"}, "the later version to be served, and ours not")
    try:
        yield "serves entrepot.dev in v2, but this installation uses v1alpha1: upgrade entrepot here, or the CRDs"
    finally:
        cluster.install(crds.definitions())
        cluster.wait(lambda: served_versions(cluster) == {"v1alpha1"}, "our version to be served again")


def served_versions(cluster: Any) -> set[str]:
    """The served versions of our API group."""
    groups = {group["name"]: group for group in cluster.request("GET", "/apis")["groups"]}
    return {group["version"] for group in groups.get("entrepot.dev", {"versions": ()})["versions"]}


def install_operator(cluster: Any) -> str:
    """Create a namespace with the operator's account and rights; returns its name."""
    namespace = str(cluster.namespace("wrong"))
    for part in ("operator", "gates"):
        for item in install_manifests.objects(namespace=namespace, only=part):
            if item["kind"] not in ("Deployment", "PodDisruptionBudget"):
                cluster.apply(cluster.path_of(item), item)
    return namespace


def operator_arguments(cluster: Any, namespace: str, *more: str) -> list[str]:
    kubeconfig = str(cluster.kubeconfig_of(namespace, "entrepot-operator"))
    words = ["operator", "--kubeconfig", kubeconfig, "--namespace", namespace, "--identity", "one"]
    return [*words, "--health-port", "0", "--lease-seconds", "2", *more]


def manifest(folder: Path) -> str:
    """Write a file with a pod that requires an object; returns its path."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "reader", "annotations": {"entrepot.dev/requires": "aa" * 20}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    file = folder / "pod.json"
    file.write_text(json.dumps(pod))
    return str(file)


def create_held_pod(cluster: Any, name: str, timeout: str) -> str:
    """Create a held pod in a new namespace; returns the namespace."""
    namespace = str(cluster.namespace("held"))
    annotations = {"entrepot.dev/requires": "aa" * 20, "entrepot.dev/objects-timeout": timeout}
    spec = {"schedulingGates": [{"name": GATE}], "containers": [{"name": "main", "image": "none"}]}
    pod = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    return namespace


def events(cluster: Any, namespace: str) -> dict[str, str]:
    return {event["reason"]: event["message"] for event in cluster.listed(f"/api/v1/namespaces/{namespace}/events")}


def gates(cluster: Any, namespace: str, name: str) -> list[Any]:
    scheduling_gates = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")["spec"].get(
        "schedulingGates"
    )
    return list(scheduling_gates or [])


def logged_error_codes(operator: Program) -> list[str]:
    """Codes of the errors about LocalObjects that an operator has logged."""
    return [str(entry["code"]) for entry in operator.lines() if entry.get("resource") == "localobjects"]


@pytest.mark.parametrize("broken", [without_crds, with_later_crds])
def test_kinds_that_are_not_there_are_named_and_waited_for(
    entrepot_cluster: Any,
    daemon: Any,
    start: Callable[..., Program],
    broken: Callable[[Any], Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = entrepot_cluster
    namespace = install_operator(cluster)
    admin = ["--kubeconfig", str(cluster.kubeconfig)]
    publish = ["publish", "--node", "n", "--store", "main", "--address", daemon.address, "--namespace", namespace]
    publish += [*admin, "--interval", "0.1"]
    with entrepot.connect(daemon.address) as store:
        oid = store.put(b"1", name="one")
    with broken(cluster) as match:
        assert main(["inject", "-f", manifest(tmp_path), "--from-cluster", *admin]) == 1
        captured = capsys.readouterr()
        assert match in captured.err
        assert captured.out == ""
        assert main([*publish, "--once"]) == 1
        assert match in capsys.readouterr().err
        publisher, operator = start(*publish), start(*operator_arguments(cluster, namespace, "--no-webhook"))
        cluster.wait(lambda: any(item.get("leading") for item in operator.lines()), "the operator to lead")
        cluster.wait(lambda: logged_error_codes(operator), "the operator to say what is wrong")
        pod_namespace = create_held_pod(cluster, "reader", "4s")
        cluster.wait(lambda: match in publisher.output(), "the publisher to say what is wrong")
        cluster.wait(lambda: match in events(cluster, pod_namespace).get("ObjectsNotKnown", ""), "the pod's event")
        cluster.wait(lambda: not gates(cluster, pod_namespace, "reader"), "the pod to go all the same")
        cluster.wait(lambda: "ObjectsTimedOut" in events(cluster, pod_namespace), "the event that says so")
        assert publisher.output().count(match) == 1
        assert logged_error_codes(operator) == ["version_mismatch"]
        assert publisher.runs()
        assert operator.runs()

    # Both recover without a restart.
    def published() -> bool:
        local_objects = cluster.listed(resource_path("localobjects", namespace))
        return [item["spec"]["objectID"] for item in local_objects] == [str(oid)]

    cluster.wait(published, "the object to be published")
    path = resource_path("stores", namespace, "main")
    spec = {"image": "entrepot:1", "capacity": "1Gi", "nodeSelector": {"pool": "none"}}
    cluster.apply(path, {**_store(), "spec": spec})
    cluster.wait(lambda: cluster.request("GET", path).get("status"), "the operator to look at Stores")
    assert publisher.end() == 0
    assert operator.end() == 0


def _store() -> dict[str, Any]:
    return {"apiVersion": "entrepot.dev/v1alpha1", "kind": "Store", "metadata": {"name": "main"}}


def test_without_rights_the_error_names_what_is_missing(
    entrepot_cluster: Any,
    daemon: Any,
    start: Callable[..., Program],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = entrepot_cluster
    namespace = str(cluster.namespace())
    poor = ["--kubeconfig", str(cluster.kubeconfig_of(namespace, "default"))]
    assert main(["inject", "-f", manifest(tmp_path), "--from-cluster", *poor]) == 1
    captured = capsys.readouterr()
    assert 'cannot list resource "localobjects"' in captured.err
    assert "bind a Role with this verb and resource" in captured.err
    assert captured.out == ""

    publish = ["publish", "--node", "n", "--store", "main", "--address", daemon.address, *poor]
    assert main([*publish, "--once"]) == 1
    assert 'cannot patch resource "leases"' in capsys.readouterr().err
    publisher = start(*publish, "--interval", "0.1")
    cluster.wait(lambda: 'cannot patch resource "leases"' in publisher.output(), "the publisher to say what is missing")
    with entrepot.connect(daemon.address) as store:
        oid = store.put(b"1", name="one")
    rules = [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
        {"apiGroups": ["entrepot.dev"], "resources": ["*"], "verbs": ["*"]},
    ]
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "rich", "namespace": namespace}}
    bound = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "rich"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    for item in ({**role, "rules": rules}, {**role, "kind": "RoleBinding", **bound}):
        cluster.apply(cluster.path_of(item), item)

    def published() -> list[str]:
        return [item["spec"]["objectID"] for item in cluster.listed(resource_path("localobjects", namespace))]

    cluster.wait(lambda: published() == [str(oid)], "the same publisher to do its work")
    assert publisher.output().count("cannot patch") == 1
    assert publisher.end() == 0


def test_an_operator_whose_port_is_taken_ends_and_holds_no_lease(
    entrepot_cluster: Any, start: Callable[..., Program]
) -> None:
    cluster = entrepot_cluster
    namespace = install_operator(cluster)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        program = start(*operator_arguments(cluster, namespace, "--webhook-host", "127.0.0.1", "--webhook-port", port))
        assert program.process.wait(60) == 1
    assert f"the webhook cannot listen on 127.0.0.1, port {port}" in program.output()
    leases = [
        each["metadata"]["name"] for each in cluster.listed(lease_path(namespace)) if each["spec"]["holderIdentity"]
    ]
    assert leases == []
