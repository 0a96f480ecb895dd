"""Pods created by Airflow: by its executor's own code for each attempt, and by KubernetesPodOperator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pod_inspection import HOSTNAME, preferred_nodes
from recorded_steps import StepResults, run_program

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

DAGS = Path(__file__).with_name("pod_dags.py")
STORE_LABEL = "entrepot.dev/store"


def run_dags(home: Path, address: str, database: dict[str, str], *arguments: str) -> StepResults:
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
    file = home / "found.json"
    return run_program([sys.executable, str(DAGS), str(file), *arguments], file, environment=environment, folder=home)


@pytest.fixture(scope="module")
def steps(
    module_daemon: Any, airflow_database: Callable[[], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> StepResults:
    """Outcomes of the DAGs in pod_dags.py."""
    return run_dags(tmp_path_factory.mktemp("airflow"), module_daemon.address, airflow_database())


@pytest.fixture
def flow(steps: StepResults) -> dict[str, Any]:
    """The pods of the DAG ``flow``."""
    results: dict[str, Any] = steps.value("flow")
    return results


@pytest.fixture
def operator(steps: StepResults) -> dict[str, Any]:
    """The pods of the DAG ``operator``."""
    results: dict[str, Any] = steps.value("operator")
    return results


def required_terms(pod: dict[str, Any]) -> Any:
    node_affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])


def test_a_task_is_scheduled_near_its_upstream_values(flow: dict[str, Any]) -> None:
    assert flow["states"] == ["skipped", "success"]
    assert preferred_nodes(flow["first"]["both[-1]"]) == {"node-big": 100, "node-small": 33}


def test_a_task_without_inputs_prefers_any_store(flow: dict[str, Any]) -> None:
    pod = flow["first"]["big[-1]"]
    assert preferred_nodes(pod) == {}
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchExpressions"][0]["key"] == STORE_LABEL
    (container,) = pod["spec"]["containers"]
    assert "/run/stores" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert {"name": "ENTREPOT_ADDRESS", "value": "unix:///run/stores/store.sock"} in container["env"]
    assert "AIRFLOW_IS_K8S_EXECUTOR_POD" in [variable["name"] for variable in container["env"]]


def test_the_authors_override_precedes_the_graph(flow: dict[str, Any]) -> None:
    choosy = flow["first"]["choosy[-1]"]
    assert preferred_nodes(choosy) == {"node-big": 100}
    assert required_terms(choosy) == [
        {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["node-big"]}]},
    ]
    indifferent = flow["first"]["indifferent[-1]"]
    assert "affinity" not in indifferent["spec"]
    assert "volumes" not in indifferent["spec"]


def test_each_mapped_instance_is_scheduled_near_its_own_value(flow: dict[str, Any]) -> None:
    for index in range(2):
        assert preferred_nodes(flow["first"][f"shrink[{index}]"]) == {f"node-grow-{index}": 100}
        assert preferred_nodes(flow["first"][f"branch.end[{index}]"]) == {f"node-branch.begin-{index}": 100}


def test_skipped_instances_are_left_out(flow: dict[str, Any]) -> None:
    assert "after[1]" not in flow["first"]
    assert preferred_nodes(flow["first"]["after[0]"]) == {"node-odd-1": 100}


def test_a_gathering_task_is_scheduled_near_all_its_inputs(flow: dict[str, Any]) -> None:
    assert preferred_nodes(flow["first"]["gather[-1]"]) == {"node-grow-1": 100, "node-grow-0": 50}


def test_the_pod_of_a_kedro_node_is_scheduled_near_its_datasets(flow: dict[str, Any]) -> None:
    assert preferred_nodes(flow["first"]["nodes[-1]"]) == {"node-kedro": 100}


def test_the_next_attempt_reads_locations_again(flow: dict[str, Any]) -> None:
    assert preferred_nodes(flow["second"]["both[-1]"]) == {"other-big": 100, "other-small": 33}


def test_a_pod_is_created_without_locations(flow: dict[str, Any]) -> None:
    pod = flow["unknown"]["both[-1]"]
    assert preferred_nodes(pod) == {}
    assert pod["spec"]["volumes"]
    assert "unknown-objects" in pod["metadata"]["annotations"]["entrepot.dev/injected"]


def test_no_pod_is_bound_to_a_node_by_name(flow: dict[str, Any], operator: dict[str, Any]) -> None:
    pods = [pod for key in ("first", "second", "unknown") for pod in flow[key].values()] + operator["pods"]
    assert len(pods) > 30
    assert not [pod for pod in pods if "nodeName" in pod["spec"]]


def test_operator_pods_use_the_locations_at_creation(operator: dict[str, Any]) -> None:
    assert set(operator["states"].values()) == {"success"}
    assert operator["unanswered"] == []
    pod, plain, named = operator["pods"]
    assert preferred_nodes(pod) == {"node-made": 100}
    (term,) = required_terms(pod)
    assert {"key": "gpu", "operator": "Exists"} in term["matchExpressions"]  # the author's requirement is kept
    assert preferred_nodes(named) == {"node-unread": 100}
    assert not plain["spec"].get("affinity")  # without callback and annotations the pod is not ours to change
    assert not plain["spec"].get("volumes")


def test_an_invalid_annotation_fails_the_task(flow: dict[str, Any]) -> None:
    kind, text = flow["refused"]
    assert kind == "InvalidArgument"
    assert "'nearby'" in text


def test_an_unreachable_database_fails_no_task(tmp_path: Path) -> None:
    steps = run_dags(tmp_path, "unix:///nowhere", {}, "--without-database")
    pod = steps.value("without database")
    assert pod["spec"]["volumes"]
    assert preferred_nodes(pod) == {}
    assert "cannot determine the inputs of task both in DAG flow" in steps.output
