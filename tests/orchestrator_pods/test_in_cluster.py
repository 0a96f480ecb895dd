"""End to end: a value sealed by one node's store attracts the pod that reads it to that node.

The orchestrators' own code creates the pods, the real scheduler places them, and their commands read the value from the
store of the node on which they are placed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_operator.kubernetes.objects import resource_path
from paired_nodes import Kubelet, PairedNode, local_command, paired_nodes

RUN_PROGRAMS = str(Path(__file__).parents[1] / "run_programs")  # what the orchestrators' scripts share
TEST_FOLDER = Path(__file__).parent
ZONES = {"flow-east": "east", "flow-west": "west", "flow-north": "north"}


@pytest.fixture(scope="module")
def published(entrepot_cluster: Any) -> str:
    """Namespace in which the stores publish."""
    return str(entrepot_cluster.namespace("stores"))


@pytest.fixture
def namespace(entrepot_cluster: Any) -> str:
    """Namespace for a test's own pods."""
    return str(entrepot_cluster.namespace("flow"))


@pytest.fixture(scope="module")
def nodes(entrepot_cluster: Any, published: str) -> Iterator[dict[str, PairedNode]]:
    labels = {name: {"topology.kubernetes.io/zone": zone} for name, zone in ZONES.items()}
    with paired_nodes(entrepot_cluster, labels, published) as started:
        yield started


def run_orchestrator(home: Path, control_plane: Any, script: str, **variables: str) -> dict[str, Any]:
    """Run an orchestrator's script to its end; returns its results."""
    environment = os.environ | {"KUBECONFIG": str(control_plane.kubeconfig), "PYTHONPATH": RUN_PROGRAMS} | variables
    command = [sys.executable, str(TEST_FOLDER / script), str(home / "found.json")]
    process = subprocess.run(command, env=environment, cwd=TEST_FOLDER, capture_output=True, text=True, timeout=240)
    assert process.returncode == 0, (process.stdout + process.stderr)[-20_000:]
    results: dict[str, Any] = json.loads((home / "found.json").read_text())
    return results


def test_a_pod_is_scheduled_near_a_sealed_object(
    entrepot_cluster: Any, published: str, namespace: str, nodes: dict[str, PairedNode], tmp_path: Path
) -> None:
    """Using only the command line: ``entrepot inject --from-cluster`` on a pod."""
    with entrepot.connect(nodes["flow-west"].address) as store:
        store.put(np.zeros(1_000_000), name="orders")
    path = resource_path("localobjects", published)
    entrepot_cluster.wait(lambda: entrepot_cluster.listed(path, fieldSelector="spec.node=flow-west"), "the publisher")
    read = "import entrepot; print(entrepot.connect().get_by_name('orders').nbytes)"
    container = {"name": "main", "image": "none", "command": ["python", "-c", read]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader"}, "spec": spec}
    words = ["inject", "-f", "-", "--require", "orders", "--from-cluster", "--store-namespace", published]
    process = subprocess.run(
        [sys.executable, "-m", "entrepot.cli", *words, "--kubeconfig", str(entrepot_cluster.kubeconfig), "--strict"],
        input=json.dumps(manifest),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    entrepot_cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", json.loads(process.stdout))
    with Kubelet(entrepot_cluster, nodes, namespace, tmp_path, program=local_command) as kubelet:
        kubelet.wait(["reader"])
    assert kubelet.runs["reader"].node == "flow-west"
    assert kubelet.log("reader").strip() == "8000000"


def test_pods_of_airflow_follow_their_data(
    entrepot_cluster: Any,
    published: str,
    namespace: str,
    nodes: dict[str, PairedNode],
    airflow_database: Callable[[], dict[str, str]],
    tmp_path: Path,
) -> None:
    variables = airflow_database() | {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__XCOM_BACKEND": "entrepot_airflow.EntrepotXComBackend",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(TEST_FOLDER),
        "NAMESPACE": namespace,
        "PUBLISHED": published,
        "AIRFLOW__ENTREPOT__LOCATIONS": f"cluster:{published}",
        "ENTREPOT_SCOPE": "tests",
        "STORES": json.dumps({name: item.address for name, item in nodes.items()}),
    }
    with Kubelet(entrepot_cluster, nodes, namespace, tmp_path, program=local_command) as kubelet:
        results = run_orchestrator(tmp_path, entrepot_cluster, "cluster_dags.py", **variables)
        kubelet.check()
    assert set(results["states"].values()) == {"success"}
    (ran,) = [item for name, item in kubelet.runs.items() if item.pod["metadata"]["labels"].get("from") == "operator"]
    assert ran.node == "flow-west"
    assert ran.code == 0
    assert kubelet.log(ran.pod["metadata"]["name"]).strip() == "2000000 bytes"
    for item in results["pods"].values():
        item["metadata"]["namespace"] = namespace
        entrepot_cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", item)
    placed = entrepot_cluster.bound(namespace, [item["metadata"]["name"] for item in results["pods"].values()])
    node_by_task = {task: placed[item["metadata"]["name"]] for task, item in results["pods"].items()}
    assert node_by_task == {"both": "flow-east", "single": "flow-west"}


def test_steps_of_dagster_run_where_their_inputs_are(
    entrepot_cluster: Any, published: str, namespace: str, nodes: dict[str, PairedNode], tmp_path: Path
) -> None:
    launcher = {
        "module": "dagster_k8s",
        "class": "K8sRunLauncher",
        "config": {
            "service_account_name": "default",
            "instance_config_map": "dagster-instance",
            "dagster_home": str(tmp_path),
            "load_incluster_config": False,
            "kubeconfig_file": str(entrepot_cluster.kubeconfig),
            "job_image": "image:1",
        },
    }
    (tmp_path / "dagster.yaml").write_text(json.dumps({"run_launcher": launcher, "telemetry": {"enabled": False}}))
    run_variables = {
        "DAGSTER_HOME": str(tmp_path),
        "PYTHONPATH": str(TEST_FOLDER),
        "NAMESPACE": namespace,
        "PUBLISHED": published,
    }
    with Kubelet(
        entrepot_cluster, nodes, namespace, tmp_path, program=local_command, variables=run_variables
    ) as kubelet:
        results = run_orchestrator(tmp_path, entrepot_cluster, "cluster_jobs.py", **run_variables)
        kubelet.check()
    steps = {
        variable["value"]: ran
        for ran in kubelet.runs.values()
        for variable in ran.pod["spec"]["containers"][0].get("env") or []
        if variable["name"] == "DAGSTER_RUN_STEP_KEY"
    }
    logs = "\n".join(kubelet.log(ran.pod["metadata"]["name"])[-3000:] for ran in steps.values())
    assert results == {"success": True}, logs
    assert {step: ran.node for step, ran in steps.items()} == {
        "east": "flow-east",
        "count": "flow-east",
        "west": "flow-west",
        "halve": "flow-west",
    }


def test_a_node_whose_store_is_lost_is_not_preferred(
    entrepot_cluster: Any, published: str, nodes: dict[str, PairedNode]
) -> None:
    """Has to be the last test, because the node's store is not restarted."""
    from entrepot_operator.kubernetes.api import Api
    from entrepot_operator.kubernetes.credentials import find
    from entrepot_operator.kubernetes.locations import read_cluster_locations

    api = Api(find(str(entrepot_cluster.kubeconfig)))
    with entrepot.connect(nodes["flow-north"].address) as store:
        oid = str(store.put(np.zeros(1000), name="gone"))
    entrepot_cluster.wait(lambda: read_cluster_locations(api, published).objects.get(oid), "the publisher")
    nodes["flow-north"].end("store")
    entrepot_cluster.wait(
        lambda: read_cluster_locations(api, published).objects.get(oid) == {}, "the lease to run out", 60
    )
    assert "flow-north" in read_cluster_locations(api, published).expired_nodes
    api.close()
