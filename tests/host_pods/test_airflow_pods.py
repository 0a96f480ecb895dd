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

from made_pods import HOSTNAME, drawn

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

DAGS = Path(__file__).with_name("pod_dags.py")
STORE = "entrepot.dev/store"


def run(home: Path, address: str, database: dict[str, str], *commands: list[str]) -> str:
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
    said = ""
    for command in commands:
        done = subprocess.run(
            [sys.executable, *command], env=environment, cwd=home, capture_output=True, text=True, timeout=600
        )
        said += done.stdout + done.stderr
        assert done.returncode == 0, said[-20_000:]
    return said


@pytest.fixture(scope="module")
def made(
    module_daemon: Any, airflow_database: Callable[[], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Results of the DAGs in pod_dags.py."""
    home = tmp_path_factory.mktemp("airflow")
    run(home, module_daemon.address, airflow_database(), [str(DAGS), str(home / "found.json")])
    found: dict[str, Any] = json.loads((home / "found.json").read_text())
    return found


def terms(pod: dict[str, Any]) -> Any:
    node = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return node.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])


def test_a_task_is_drawn_to_what_its_upstream_tasks_pushed(made: dict[str, Any]) -> None:
    assert made["states"] == ["skipped", "success"]
    assert drawn(made["first"]["both[-1]"]) == {"node-big": 100, "node-small": 33}


def test_a_task_that_reads_nothing_wants_a_store_and_no_node(made: dict[str, Any]) -> None:
    pod = made["first"]["big[-1]"]
    assert drawn(pod) == {}
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchExpressions"][0]["key"] == STORE
    (container,) = pod["spec"]["containers"]
    assert "/run/stores" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert {"name": "ENTREPOT_ADDRESS", "value": "unix:///run/stores/store.sock"} in container["env"]
    assert "AIRFLOW_IS_K8S_EXECUTOR_POD" in [one["name"] for one in container["env"]]


def test_what_the_author_says_goes_before_the_graph(made: dict[str, Any]) -> None:
    choosy = made["first"]["choosy[-1]"]
    assert drawn(choosy) == {"node-big": 100}
    assert terms(choosy) == [
        {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["node-big"]}]},
    ]
    indifferent = made["first"]["indifferent[-1]"]
    assert "affinity" not in indifferent["spec"]
    assert "volumes" not in indifferent["spec"]


def test_each_instance_of_a_mapped_task_is_drawn_to_its_own_value(made: dict[str, Any]) -> None:
    for index in range(2):
        assert drawn(made["first"][f"shrink[{index}]"]) == {f"node-grow-{index}": 100}
        assert drawn(made["first"][f"branch.end[{index}]"]) == {f"node-branch.begin-{index}": 100}


def test_an_instance_that_was_skipped_leaves_no_gap(made: dict[str, Any]) -> None:
    assert "after[1]" not in made["first"]
    assert drawn(made["first"]["after[0]"]) == {"node-odd-1": 100}


def test_a_task_that_gathers_is_drawn_to_all_of_them(made: dict[str, Any]) -> None:
    assert drawn(made["first"]["gather[-1]"]) == {"node-grow-1": 100, "node-grow-0": 50}


def test_the_pod_of_a_kedro_node_is_drawn_to_its_datasets(made: dict[str, Any]) -> None:
    assert drawn(made["first"]["nodes[-1]"]) == {"node-kedro": 100}


def test_the_next_attempt_looks_again(made: dict[str, Any]) -> None:
    assert drawn(made["second"]["both[-1]"]) == {"other-big": 100, "other-small": 33}


def test_without_locations_a_pod_is_made_all_the_same(made: dict[str, Any]) -> None:
    pod = made["unknown"]["both[-1]"]
    assert drawn(pod) == {}
    assert pod["spec"]["volumes"]
    assert "unknown-objects" in pod["metadata"]["annotations"]["entrepot.dev/injected"]


def test_no_pod_is_bound_to_a_node_by_name(made: dict[str, Any]) -> None:
    pods = [pod for key in ("first", "second", "unknown") for pod in made[key].values()] + made["pods"]
    assert len(pods) > 30
    assert not [pod for pod in pods if "nodeName" in pod["spec"]]


def test_the_pod_of_an_operator_is_made_where_the_data_is_then(made: dict[str, Any]) -> None:
    assert set(made["operator"].values()) == {"success"}
    assert made["unanswered"] == []
    pod, plain, named = made["pods"]
    assert drawn(pod) == {"node-made": 100}
    (term,) = terms(pod)
    assert {"key": "gpu", "operator": "Exists"} in term["matchExpressions"]  # the author's requirement is kept
    assert drawn(named) == {"node-unread": 100}
    assert not plain["spec"].get("affinity")  # without callback and annotations the pod is not ours to change
    assert not plain["spec"].get("volumes")


def test_a_wish_that_cannot_be_understood_fails_the_task_with_its_reason(made: dict[str, Any]) -> None:
    kind, text = made["refused"]
    assert kind == "InvalidArgument"
    assert "'nearby'" in text


def test_a_database_that_does_not_answer_makes_no_task_fail(tmp_path: Path) -> None:
    said = run(tmp_path, "unix:///nowhere", {}, [str(DAGS), str(tmp_path / "found.json"), "--without-database"])
    pod = json.loads((tmp_path / "found.json").read_text())
    assert pod["spec"]["volumes"]
    assert drawn(pod) == {}
    assert "what both of flow reads cannot be known now" in said
