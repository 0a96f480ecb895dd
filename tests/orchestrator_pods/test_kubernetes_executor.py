"""A run under Airflow's KubernetesExecutor: each task in a pod of its own, with the store of the pod's node."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paired_nodes import Kubelet, local_command, paired_nodes

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "failover"))

import airflow_server

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]

DAGS = Path(__file__).with_name("executor_dags")
DAG_ID = "spread_pods"
ZONES = {"pods-east": "east", "pods-west": "west"}
# Where a task runs: in its zone, or where its input is.
NODES = {
    "east": "pods-east",
    "count_east": "pods-east",
    "count_elsewhere": "pods-west",
    "west": "pods-west",
    "halve": "pods-west",
    "count": "pods-west",
}


@pytest.fixture(scope="module")
def run(
    entrepot_cluster: Any,
    airflow_database: Callable[[], dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Any]:
    """States, values, logs and nodes of the run's tasks."""
    published, namespace = (str(entrepot_cluster.namespace(prefix)) for prefix in ("stores", "pods"))
    folder = tmp_path_factory.mktemp("executor")
    kubeconfig = str(entrepot_cluster.kubeconfig)
    variables = airflow_database() | {
        "AIRFLOW__CORE__EXECUTOR": "KubernetesExecutor",
        "AIRFLOW__KUBERNETES_EXECUTOR__NAMESPACE": namespace,
        "AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
        "AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE": kubeconfig,
        "AIRFLOW__KUBERNETES_EXECUTOR__WORKER_CONTAINER_REPOSITORY": "airflow",
        "AIRFLOW__KUBERNETES_EXECUTOR__WORKER_CONTAINER_TAG": "3",
        "AIRFLOW__KUBERNETES_EXECUTOR__DELETE_WORKER_PODS": "False",
        # What was made within the last seconds is not published yet: its reference says where it is.
        "AIRFLOW__ENTREPOT__LOCATIONS": f"cluster:{published},references",
        "KUBECONFIG": kubeconfig,
        "ENTREPOT_SCOPE": "tests",
    }
    labels = {name: {"topology.kubernetes.io/zone": zone} for name, zone in ZONES.items()}
    with (
        paired_nodes(entrepot_cluster, labels, published) as nodes,
        airflow_server.services(folder / "airflow", DAGS, variables) as server,
        Kubelet(
            entrepot_cluster, nodes, namespace, folder, program=local_command, variables=server.variables
        ) as kubelet,
    ):
        server.wait_until_ready({DAG_ID})
        run_id = server.start_run(DAG_ID)
        server.wait_for_end(DAG_ID, run_id)
        kubelet.check()
        assert all(pod.pod["spec"]["containers"][0]["args"][0] == "python" for pod in kubelet.runs.values())
        pods = {pod.pod["metadata"]["labels"]["task_id"]: pod for pod in kubelet.runs.values()}
        states = server.task_states(DAG_ID, run_id)
        yield {
            "states": states,
            "nodes": {task_id: pod.node for task_id, pod in pods.items()},
            "logs": {task_id: kubelet.log(pod.pod["metadata"]["name"]) for task_id, pod in pods.items()},
            "entries": {
                task_id: server.xcom_entry(DAG_ID, run_id, task_id)
                for task_id, state in states.items()
                if state == "success"
            },
        }


def test_tasks_run_where_their_values_are(run: Any) -> None:
    assert run["nodes"] == NODES, run["logs"]


def test_pods_hand_values_to_each_other_through_their_node(run: Any) -> None:
    expected = dict.fromkeys(NODES, "success") | {"count_elsewhere": "failed"}
    assert run["states"] == expected, run["logs"]
    assert run["entries"]["halve"]["entrepot"] == 1
    assert (run["entries"]["count_east"], run["entries"]["count"]) == (3_000_000, 1_000_000)


def test_a_pod_on_another_node_says_where_the_value_is(run: Any) -> None:
    assert "lives on host 'pods-east'" in run["logs"]["count_elsewhere"]
