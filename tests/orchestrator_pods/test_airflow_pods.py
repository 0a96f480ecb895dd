"""Pods created by Airflow: by its executor's own code for each attempt, and by KubernetesPodOperator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pod_inspection import HOSTNAME, preferred_nodes

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

DAGS = Path(__file__).with_name("pod_dags.py")
STORE_LABEL = "entrepot.dev/store"


def run_commands(home: Path, address: str, database: dict[str, str], *commands: list[str]) -> str:
    environment = (
        os.environ
        | database
        | {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__XCOM_BACKEND": "entrepot_airflow.EntrepotXComBackend",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS.parent),
            "AIRFLOW__ENTREPOT__LOCATIONS": str(home / "locations.json"),
            "AIRFLOW__ENTREPOT__SOCKET_FOLDER": "/run/stores",
            "ENTREPOT_ADDRESS": address,
            "ENTREPOT_SCOPE": "tests",
        }
    )
    output = ""
    for command in commands:
        process = subprocess.run(
            [sys.executable, *command], env=environment, cwd=home, capture_output=True, text=True, timeout=600
        )
        output += process.stdout + process.stderr
        assert process.returncode == 0, output[-20_000:]
    return output


@pytest.fixture(scope="module")
def made(
    module_daemon: Any, airflow_database: Callable[[], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Results of the DAGs in pod_dags.py."""
    home = tmp_path_factory.mktemp("airflow")
    run_commands(home, module_daemon.address, airflow_database(), [str(DAGS), str(home / "found.json")])
    results: dict[str, Any] = json.loads((home / "found.json").read_text())
    return results


def required_terms(pod: dict[str, Any]) -> Any:
    node_affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])


def test_a_task_is_scheduled_near_its_upstream_values(made: dict[str, Any]) -> None:
    assert made["states"] == ["skipped", "success"]
    assert preferred_nodes(made["first"]["both[-1]"]) == {"node-big": 100, "node-small": 33}


def test_a_task_without_inputs_prefers_any_store(made: dict[str, Any]) -> None:
    pod = made["first"]["big[-1]"]
    assert preferred_nodes(pod) == {}
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchExpressions"][0]["key"] == STORE_LABEL
    (container,) = pod["spec"]["containers"]
    assert "/run/stores" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert {"name": "ENTREPOT_ADDRESS", "value": "unix:///run/stores/store.sock"} in container["env"]
    assert "AIRFLOW_IS_K8S_EXECUTOR_POD" in [variable["name"] for variable in container["env"]]


def test_the_authors_override_precedes_the_graph(made: dict[str, Any]) -> None:
    choosy = made["first"]["choosy[-1]"]
    assert preferred_nodes(choosy) == {"node-big": 100}
    assert required_terms(choosy) == [
        {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["node-big"]}]},
    ]
    indifferent = made["first"]["indifferent[-1]"]
    assert "affinity" not in indifferent["spec"]
    assert "volumes" not in indifferent["spec"]


def test_each_mapped_instance_is_scheduled_near_its_own_value(made: dict[str, Any]) -> None:
    for index in range(2):
        assert preferred_nodes(made["first"][f"shrink[{index}]"]) == {f"node-grow-{index}": 100}
        assert preferred_nodes(made["first"][f"branch.end[{index}]"]) == {f"node-branch.begin-{index}": 100}


def test_skipped_instances_are_left_out(made: dict[str, Any]) -> None:
    assert "after[1]" not in made["first"]
    assert preferred_nodes(made["first"]["after[0]"]) == {"node-odd-1": 100}


def test_a_gathering_task_is_scheduled_near_all_its_inputs(made: dict[str, Any]) -> None:
    assert preferred_nodes(made["first"]["gather[-1]"]) == {"node-grow-1": 100, "node-grow-0": 50}


def test_the_pod_of_a_kedro_node_is_scheduled_near_its_datasets(made: dict[str, Any]) -> None:
    assert preferred_nodes(made["first"]["nodes[-1]"]) == {"node-kedro": 100}


def test_the_next_attempt_reads_locations_again(made: dict[str, Any]) -> None:
    assert preferred_nodes(made["second"]["both[-1]"]) == {"other-big": 100, "other-small": 33}


def test_a_pod_is_created_without_locations(made: dict[str, Any]) -> None:
    pod = made["unknown"]["both[-1]"]
    assert preferred_nodes(pod) == {}
    assert pod["spec"]["volumes"]
    assert "unknown-objects" in pod["metadata"]["annotations"]["entrepot.dev/injected"]


def test_no_pod_is_bound_to_a_node_by_name(made: dict[str, Any]) -> None:
    pods = [pod for key in ("first", "second", "unknown") for pod in made[key].values()] + made["pods"]
    assert len(pods) > 30
    assert not [pod for pod in pods if "nodeName" in pod["spec"]]


def test_operator_pods_use_the_locations_at_creation(made: dict[str, Any]) -> None:
    assert set(made["operator"].values()) == {"success"}
    assert made["unanswered"] == []
    pod, plain, named = made["pods"]
    assert preferred_nodes(pod) == {"node-made": 100}
    (term,) = required_terms(pod)
    assert {"key": "gpu", "operator": "Exists"} in term["matchExpressions"]  # the author's requirement is kept
    assert preferred_nodes(named) == {"node-unread": 100}
    assert not plain["spec"].get("affinity")  # without callback and annotations the pod is not ours to change
    assert not plain["spec"].get("volumes")


def test_an_invalid_annotation_fails_the_task(made: dict[str, Any]) -> None:
    kind, text = made["refused"]
    assert kind == "InvalidArgument"
    assert "'nearby'" in text


def test_an_unreachable_database_fails_no_task(tmp_path: Path) -> None:
    output = run_commands(
        tmp_path, "unix:///nowhere", {}, [str(DAGS), str(tmp_path / "found.json"), "--without-database"]
    )
    pod = json.loads((tmp_path / "found.json").read_text())
    assert pod["spec"]["volumes"]
    assert preferred_nodes(pod) == {}
    assert "cannot determine the inputs of task both in DAG flow" in output
