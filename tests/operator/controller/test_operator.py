"""The operator as a process, with its shipped rights, on a real control plane."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from entrepot_operator import install_manifests
from entrepot_operator.kubernetes.objects import lease_path, resource_path
from entrepot_operator.placement import Node, inject
from fake_publisher import publish, renew

NODES = ("op-a", "op-b")
GATE = "entrepot.dev/objects"
LEASE_SECONDS = 2


class OperatorReplica:
    """A running replica."""

    def __init__(self, kubeconfig: Path, namespace: str, identity: str, log: Path) -> None:
        arguments = ["operator", "--kubeconfig", str(kubeconfig), "--namespace", namespace, "--identity", identity]
        arguments += ["--health-port", "0", "--lease-seconds", str(LEASE_SECONDS), "--hold-seconds", "0"]
        arguments.append("--no-webhook")  # tested separately
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen([sys.executable, "-m", "entrepot.cli", *arguments], stderr=file)

    def lines(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        return [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of its HTTP pages; status 0 if it does not serve them."""
        ports = [entry["port"] for entry in self.lines() if "port" in entry]
        if not ports:
            assert self.process.poll() is None, self._log.read_text()
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        """A value from ``/metrics``."""
        match = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(match.group(1)) if match else 0.0

    def leads(self) -> bool:
        return self.metric("entrepot_operator_leading") == 1

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


def install(cluster: Any) -> str:
    """Create a namespace with the operator's account and rights; returns its name."""
    namespace = str(cluster.namespace("operator"))
    for part in ("operator", "gates"):
        for manifest in install_manifests.objects(namespace=namespace, only=part):
            if manifest["kind"] not in ("Deployment", "PodDisruptionBudget"):
                cluster.apply(cluster.path_of(manifest), manifest)
    return namespace


@contextmanager
def replica(cluster: Any, namespace: str, identity: str, folder: Path, account: str = "entrepot-operator") -> Any:
    kubeconfig = cluster.kubeconfig_of(namespace, account)
    running = OperatorReplica(kubeconfig, namespace, identity, folder / f"{identity}.log")
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(entrepot_cluster: Any) -> Iterator[Any]:
    """The cluster, with two nodes for stores."""
    with entrepot_cluster.some_nodes({name: {"pool": "op"} for name in NODES}):
        yield entrepot_cluster


@pytest.fixture(scope="module")
def namespace(cluster: Any) -> str:
    """Namespace of this module's operator and its Stores."""
    return install(cluster)


@pytest.fixture(scope="module")
def operator(cluster: Any, namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorReplica]:
    """An operator that leads; checks that it ends cleanly and has logged no errors."""
    with replica(cluster, namespace, "one", tmp_path_factory.mktemp("operator")) as running:
        cluster.wait(lambda: running.leads() and running.get("/readyz")[0] == 200, "the operator to lead")
        assert running.get("/healthz") == (200, "ok\n")
        yield running
        assert running.end() == 0
        faults = [entry for entry in running.lines() if entry["level"] == "error"]
        assert not faults


def put_store(cluster: Any, namespace: str, name: str = "main", /, **spec: Any) -> None:
    store_spec = {"image": "entrepot:1", "capacity": "1Gi", "nodeSelector": {"pool": "op"}, **spec}
    manifest = {"apiVersion": "entrepot.dev/v1alpha1", "kind": "Store", "metadata": {"name": name}, "spec": store_spec}
    cluster.apply(resource_path("stores", namespace, name), manifest)


def status(cluster: Any, namespace: str, name: str = "main") -> dict[str, Any]:
    current = cluster.request("GET", resource_path("stores", namespace, name)).get("status") or {}
    conditions = {condition["type"]: condition for condition in current.get("conditions") or []}
    return {
        **current,
        **{kind: (condition["status"], condition["reason"]) for kind, condition in conditions.items()},
        "by_type": conditions,
    }


def labels(cluster: Any) -> dict[str, str | None]:
    return {
        node["metadata"]["name"]: node["metadata"]["labels"].get("entrepot.dev/store")
        for node in cluster.listed("/api/v1/nodes")
        if node["metadata"]["name"] in NODES
    }


def events(cluster: Any, namespace: str, name: str) -> dict[str, str]:
    items = cluster.listed(f"/api/v1/namespaces/{namespace}/events", fieldSelector=f"involvedObject.name={name}")
    return {
        event["reason"]: event["message"] for event in items if event["source"].get("component") == "entrepot-operator"
    }


def test_a_store_from_its_beginning_to_its_end(cluster: Any, namespace: str, operator: OperatorReplica) -> None:
    put_store(cluster, namespace)
    cluster.wait(
        lambda: status(cluster, namespace).get("Degraded") == ("True", "NotHeard"), "pods whose publishers are silent"
    )
    assert labels(cluster) == dict.fromkeys(NODES)
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/entrepot-main"
    created = cluster.request("GET", path)
    assert created["metadata"]["ownerReferences"][0]["kind"] == "Store"
    for kind in ("serviceaccounts", "roles", "rolebindings"):
        root = "/api/v1" if kind == "serviceaccounts" else "/apis/rbac.authorization.k8s.io/v1"
        assert cluster.request("GET", f"{root}/namespaces/{namespace}/{kind}/entrepot-publisher")

    for node in NODES:
        renew(cluster, namespace, node)
    cluster.wait(lambda: labels(cluster) == dict.fromkeys(NODES, "ready"), "the labels of both nodes")
    cluster.wait(lambda: status(cluster, namespace)["Ready"] == ("True", "AllNodesReady"), "the Store to be ready")
    before = status(cluster, namespace)
    assert (before["wantedNodes"], before["readyNodes"]) == (2, 2)
    assert before["by_type"]["Ready"]["observedGeneration"] == 1

    publish(cluster, namespace, "aa" * 20, "op-a")
    renew(cluster, namespace, "op-b", 1)  # for the last time
    cluster.wait(lambda: labels(cluster) == {"op-a": "ready", "op-b": None}, "the node with the old lease to lose it")
    cluster.wait(lambda: status(cluster, namespace)["Ready"] == ("False", "NodesNotReady"), "the Store to say so")
    cluster.wait(lambda: status(cluster, namespace)["publishedObjects"] == 1, "the object to be counted")

    # Another client changes a field that the operator owns.
    wrong = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}
    cluster.request("PATCH", path, wrong, kind="application/merge-patch+json")

    def is_restored() -> bool:
        return bool(cluster.request("GET", path)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 120)

    cluster.wait(is_restored, "the DaemonSet to be as it was")

    cluster.request("DELETE", resource_path("stores", namespace, "main"))
    cluster.wait(lambda: labels(cluster) == dict.fromkeys(NODES), "the label to go with the Store")
    cluster.wait(
        lambda: not cluster.listed(f"/apis/apps/v1/namespaces/{namespace}/daemonsets"), "the DaemonSet to be collected"
    )
    cluster.wait(
        lambda: (
            not any(
                account["metadata"]["name"] == "entrepot-publisher"
                for account in cluster.listed(f"/api/v1/namespaces/{namespace}/serviceaccounts")
            )
        ),
        "the publishers' account to be collected",
    )


def test_a_store_that_kubernetes_refuses_says_why(cluster: Any, namespace: str, operator: OperatorReplica) -> None:
    elsewhere = {"nodeSelector": {"pool": "none"}}
    put_store(cluster, namespace, "bad", maxUnavailable="many", **elsewhere)
    cluster.wait(lambda: status(cluster, namespace, "bad").get("Degraded") == ("True", "Refused"), "the condition")
    current = status(cluster, namespace, "bad")
    assert "maxUnavailable" in current["by_type"]["Degraded"]["message"]
    assert current["Ready"] == ("False", "NoDaemonSet")
    cluster.wait(lambda: "maxUnavailable" in events(cluster, namespace, "bad").get("Refused", ""), "the event")
    put_store(cluster, namespace, "bad", maxUnavailable="50%", **elsewhere)
    cluster.wait(lambda: status(cluster, namespace, "bad")["Degraded"][0] == "False", "the condition to be over")
    cluster.wait(lambda: status(cluster, namespace, "bad")["Ready"] == ("False", "NoNodes"), "its DaemonSet")
    cluster.request("DELETE", resource_path("stores", namespace, "bad"))


def held_pod(
    cluster: Any,
    name: str,
    requires: str,
    timeout: str,
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda pod: pod,
    **more: str,
) -> str:
    """Create a held pod in a new namespace, changed by ``change`` and with extra annotations; returns the namespace."""
    namespace = str(cluster.namespace("held"))
    annotations = {"entrepot.dev/requires": requires, "entrepot.dev/objects-timeout": timeout, **more}
    spec = {
        "schedulingGates": [{"name": GATE}],
        "nodeSelector": {"pool": "op"},
        "containers": [{"name": "main", "image": "none"}],
    }
    manifest = change({"kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec})
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)
    return namespace


def test_a_pod_is_held_until_its_objects_are_there(cluster: Any, namespace: str, operator: OperatorReplica) -> None:
    first, second = "b1" * 20, "b2" * 20
    renew(cluster, namespace, "op-a")
    publish(cluster, namespace, first, "op-a")
    pod_namespace = held_pod(cluster, "reader", f"{first},{second}", "10min")
    cluster.wait(lambda: "WaitingForObjects" in events(cluster, pod_namespace, "reader"), "the event that it waits")
    assert events(cluster, pod_namespace, "reader")["WaitingForObjects"].endswith(f"not published: {second}")
    publish(cluster, namespace, second, "op-a")
    assert set(cluster.bound(pod_namespace, ["reader"]).values()) <= set(NODES)
    cluster.wait(lambda: "ObjectsAvailable" in events(cluster, pod_namespace, "reader"), "the event that it goes")


def preferred_nodes(cluster: Any, namespace: str, name: str) -> list[str]:
    """The values in a pod's preference with the largest weight."""
    spec = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")["spec"]
    terms = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    values: list[str] = max(terms, key=lambda term: term["weight"])["preference"]["matchExpressions"][0]["values"]
    return values


def test_a_pod_is_drawn_to_what_was_published_after_it_was_made(
    cluster: Any, namespace: str, operator: OperatorReplica
) -> None:
    object_id = "b5" * 20
    renew(cluster, namespace, "op-b")
    pod_namespace = held_pod(cluster, "reader", object_id, "10min")
    cluster.wait(lambda: "WaitingForObjects" in events(cluster, pod_namespace, "reader"), "the event that it waits")
    pod = cluster.request("GET", f"/api/v1/namespaces/{pod_namespace}/pods/reader")
    assert "affinity" not in pod["spec"]  # nothing added an affinity: no webhook runs here
    publish(cluster, namespace, object_id, "op-b")
    assert cluster.bound(pod_namespace, ["reader"]) == {"reader": "op-b"}
    assert preferred_nodes(cluster, pod_namespace, "reader") == ["op-b"]


def test_a_pod_whose_requirement_would_change_goes_as_it_was(
    cluster: Any, namespace: str, operator: OperatorReplica
) -> None:
    moved = "b6" * 20
    renew(cluster, namespace, "op-b")
    labels = {"entrepot.dev/store": "ready", "pool": "op"}
    nodes = {name: Node({"kubernetes.io/hostname": name, **labels}) for name in NODES}
    pod_namespace = held_pod(
        cluster,
        "reader",
        moved,
        "10min",
        lambda pod: inject(pod, None, {moved: {"op-a": 100}}, nodes=nodes),
        **{"entrepot.dev/locality": "required"},
    )
    spec = cluster.request("GET", f"/api/v1/namespaces/{pod_namespace}/pods/reader")["spec"]
    assert "requiredDuringSchedulingIgnoredDuringExecution" in spec["affinity"]["nodeAffinity"]
    publish(cluster, namespace, moved, "op-b")
    assert cluster.bound(pod_namespace, ["reader"]) == {"reader": "op-a"}
    assert any(
        entry.get("pod") == f"{pod_namespace}/reader" and entry.get("affinity") == "as it was"
        for entry in operator.lines()
    )


def test_no_pod_is_held_for_ever(cluster: Any, namespace: str, operator: OperatorReplica) -> None:
    unknown, wrong = held_pod(cluster, "late", "b3" * 20, "1s"), held_pod(cluster, "wrong", "orders", "10min")
    cluster.bound(unknown, ["late"])
    cluster.bound(wrong, ["wrong"])
    cluster.wait(lambda: "b3" * 20 in events(cluster, unknown, "late").get("ObjectsTimedOut", ""), "the event")
    cluster.wait(lambda: "orders" in events(cluster, wrong, "wrong").get("ObjectsNotUnderstood", ""), "the event")
    assert operator.metric('entrepot_operator_gates_lifted_total{reason="ObjectsTimedOut"}') >= 1


def test_what_a_lost_node_left_is_marked(cluster: Any, namespace: str, operator: OperatorReplica) -> None:
    renew(cluster, namespace, "op-b", 1)
    publish(cluster, namespace, "b4" * 20, "op-b")

    def reason() -> str:
        published = cluster.listed(resource_path("localobjects", namespace), fieldSelector=f"spec.objectID={'b4' * 20}")
        reasons = [condition["reason"] for condition in (published[0].get("status") or {}).get("conditions") or []]
        return reasons[0] if reasons else ""

    cluster.wait(lambda: reason() == "StoreLost", "the object to be marked", 60)


def test_when_the_leader_dies_the_other_takes_over_within_the_lease(cluster: Any, tmp_path: Path) -> None:
    namespace = install(cluster)
    with replica(cluster, namespace, "one", tmp_path) as first:
        cluster.wait(first.leads, "the first to lead")
        with replica(cluster, namespace, "two", tmp_path) as second:
            cluster.wait(lambda: second.get("/readyz")[0] == 200, "the second to be ready, without the lead")
            assert not second.leads()
            begin = time.monotonic()
            first.end(signal.SIGKILL)
            cluster.wait(second.leads, "the second to lead")
            taken = time.monotonic() - begin
            assert taken < LEASE_SECONDS + 5  # the rest is for the machine, which is busy
            put_store(cluster, namespace, "late", socketFolder="/run/late", nodeSelector={"pool": "none"})
            cluster.wait(lambda: "Ready" in status(cluster, namespace, "late"), "the second to act")
            assert second.end() == 0
    holder = cluster.request("GET", lease_path(namespace, "entrepot-operator"))["spec"]["holderIdentity"]
    assert holder == ""  # an operator that ends cleanly gives up the Lease, so that the next one starts at once


def test_without_rights_it_says_so_and_stays(cluster: Any, tmp_path: Path) -> None:
    namespace = str(cluster.namespace())
    with replica(cluster, namespace, "poor", tmp_path, account="default") as running:
        cluster.wait(lambda: "cannot list resource" in running.get("/readyz")[1], "it to say what is missing")
        assert running.get("/readyz")[0] == 503
        assert running.get("/healthz")[0] == 200
        assert any(
            entry.get("code") == "access_denied" and entry.get("resource") == "stores" for entry in running.lines()
        )
        assert running.end() == 0


def test_a_store_of_a_cluster_gets_gateways_and_their_rights(
    cluster: Any, namespace: str, operator: OperatorReplica
) -> None:
    settings = {"directory": "kubernetes:///main", "tokenSecret": {"name": "shared"}}
    put_store(cluster, namespace, "clustered", socketFolder="/run/clustered", cluster=settings, metrics={})
    daemonsets = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    try:
        cluster.wait(
            lambda: (
                any(item["metadata"]["name"] == "entrepot-clustered" for item in cluster.listed(daemonsets))
                and any(item["metadata"]["name"] == "entrepot-gateway" for item in cluster.listed(bindings))
            ),
            "the DaemonSet and the gateways' rights",
        )
        pod = cluster.request("GET", f"{daemonsets}/entrepot-clustered")["spec"]["template"]["spec"]
        assert [item["name"] for item in pod["containers"]] == ["daemon", "publisher", "gateway", "metrics"]
        assert pod["containers"][-1]["ports"][0]["containerPort"] == 9817  # the default of the schema
        binding = cluster.request("GET", f"{bindings}/entrepot-gateway")
        assert binding["subjects"][0]["name"] == pod["serviceAccountName"]
        (owner,) = binding["metadata"]["ownerReferences"]
        assert owner["name"] == "clustered"
    finally:
        cluster.request("DELETE", resource_path("stores", namespace, "clustered"))

    def gone() -> bool:
        return not any(item["metadata"]["name"] == "entrepot-clustered" for item in cluster.listed(daemonsets))

    cluster.wait(gone, "its DaemonSet to be removed with it")
