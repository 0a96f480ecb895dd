"""The policy in the XCom backend and in Airflow's hooks, without running Airflow."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from entrepot.errors import InvalidArgument, ObjectLost
from entrepot.ids import ObjectID
from entrepot_airflow.get_provider_info import get_provider_info
from entrepot_airflow.policy import policy_runtime, rerun_client
from entrepot_airflow.policy.graph import AirflowGraph
from entrepot_airflow.policy.rerun_messages import Answer, Request, format_instances
from entrepot_airflow.policy.task_attempts import instance_of, task_name
from entrepot_io.connections import close_all, scope_store, session_store
from entrepot_io.keys import airflow_key
from entrepot_io.reference import Reference
from entrepot_io.sessions import run_session
from entrepot_policy import ObjectRef, PolicyError, Task
from entrepot_policy.state.events import log_file, read_events
from rich.logging import RichHandler

XCOM_KEY = {"key": "return_value", "task_id": "load", "dag_id": "etl", "run_id": "manual__1", "map_index": -1}
OBJECT_ID = ObjectID("ab" * 20)


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("ENTREPOT_EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("ENTREPOT_SCOPE", "tests")
    yield
    close_all()


def write_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    monkeypatch.setenv("ENTREPOT_POLICY", str(file))
    return file


def event_kinds(tmp_path: Path) -> list[str]:
    return [event.kind for event in read_events(log_file("tests", tmp_path / "events"))]


@pytest.fixture
def backend(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    from entrepot_airflow import EntrepotXComBackend

    return EntrepotXComBackend


def database_entry(backend: Any, value: Any, **changes: Any) -> Any:
    return json.loads(json.dumps(backend.serialize_value(value, **(XCOM_KEY | changes))))


def read(backend: Any, entry: Any) -> Any:
    return backend.deserialize_value(SimpleNamespace(value=entry, key="return_value"))


def count_values(values: list[int]) -> int:
    return len(values)


def lose(entry: Any) -> None:
    from entrepot import raw_objects

    reference = Reference.parse(entry)
    raw_objects.discard(session_store(None, reference.scope, reference.session, None), reference.id)


def test_a_lost_value_is_reloaded_from_its_checkpoint(
    backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policy(
        tmp_path, monkeypatch, f"version: 1\ncheckpoint: {{target: {tmp_path}/kept, rules: [{{match: load}}]}}\n"
    )
    entry = database_entry(backend, np.arange(1000))
    assert entry["checkpoint"].startswith(f"{tmp_path}/kept")
    lose(entry)
    assert read(backend, entry).tolist() == list(range(1000))
    assert {"checkpoint_written", "object_lost", "reloaded", "recovered"} <= set(event_kinds(tmp_path))


def test_events_are_no_markup_to_the_log_handler_that_kedro_adds(
    backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policy(
        tmp_path, monkeypatch, f"version: 1\ncheckpoint: {{target: {tmp_path}/kept, rules: [{{match: load}}]}}\n"
    )
    handler = RichHandler(markup=True)
    logging.getLogger().addHandler(handler)
    try:
        assert "checkpoint" in database_entry(backend, np.arange(1000))
    finally:
        logging.getLogger().removeHandler(handler)


def test_a_rule_for_a_task_is_one_for_its_mapped_instances(
    backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policy(
        tmp_path, monkeypatch, f"version: 1\ncheckpoint: {{target: {tmp_path}/kept, rules: [{{match: load}}]}}\n"
    )
    assert "checkpoint" in database_entry(backend, np.arange(1000), map_index=3)
    assert "checkpoint" not in database_entry(backend, np.arange(1000), task_id="other")


def test_an_unrecoverable_loss_names_the_reason(backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_policy(
        tmp_path, monkeypatch, "version: 1\nfailover: [{on: object_lost, do: [{fail: {reason: ask the data team}}]}]\n"
    )
    entry = database_entry(backend, np.arange(1000))
    lose(entry)
    with pytest.raises(ObjectLost, match="ask the data team") as error:
        read(backend, entry)
    assert f"{file.name}:2" in str(error.value)


def test_a_policy_does_not_change_values(backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry_without_policy = database_entry(backend, np.arange(1000))
    write_policy(tmp_path, monkeypatch, "version: 1\n")
    entry = database_entry(backend, np.arange(1000))
    assert entry.keys() == entry_without_policy.keys()
    assert read(backend, entry).tolist() == list(range(1000))
    assert database_entry(backend, {"rows": 3}) == {"rows": 3}


def test_without_a_policy_no_policy_module_is_loaded(daemon: Any, tmp_path: Path) -> None:
    code = """
import sys
from types import SimpleNamespace
import entrepot_airflow.cluster_policy as hooks
from entrepot_airflow.plugin import EntrepotPlugin
from entrepot_airflow import EntrepotXComBackend as Backend
import numpy as np
place = dict(key="k", task_id="t", dag_id="d", run_id="r", map_index=-1)
entry = Backend.serialize_value(np.arange(1000), **place)
assert Backend.deserialize_value(SimpleNamespace(value=entry)).size == 1000
hooks.task_policy(None), hooks.get_airflow_context_vars({})
assert EntrepotPlugin.listeners == []
loaded = [name for name in sys.modules if name.startswith("entrepot_policy") or name.startswith("yaml_")]
assert not loaded, loaded
"""
    environment = {name: value for name, value in os.environ.items() if name != "ENTREPOT_POLICY"}
    environment |= {"AIRFLOW_HOME": str(tmp_path), "ENTREPOT_ADDRESS": daemon.address}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    ("dag_id", "task_id", "map_index", "run_id"),
    [
        ("etl", "load", -1, "manual__2026-01-01T00:00:00+00:00"),
        ("etl", "group.load", 12, "r"),
        ("a/b", "x[1]", 3, "with/slash%2F"),
        ("d", "odd[", -1, "r"),
    ],
)
def test_a_key_identifies_its_task(dag_id: str, task_id: str, map_index: int, run_id: str) -> None:
    key, session = airflow_key(dag_id, task_id, map_index, "return_value"), run_session("airflow", dag_id, run_id)
    producer = AirflowGraph().maker(ObjectRef(session, OBJECT_ID, key))
    assert producer == Task("airflow", dag_id, run_id, task_name(task_id, map_index))
    if task_id != "x[1]":
        assert producer is not None
        assert instance_of(producer) == (task_id, map_index)


@pytest.mark.parametrize(
    ("session", "key"),
    [
        ("", "etl/load/return_value"),
        ("airflow/etl/r", "other/load/return_value"),
        ("airflow/etl/r", "etl/load"),
        ("airflow/etl/r", "etl/load[x]/return_value"),
        ("dagster/etl/r", "etl/load/return_value"),
        (run_session("airflow", "etl", "r" * 300), "etl/load/return_value"),
    ],
)
def test_other_keys_identify_no_task(session: str, key: str) -> None:
    assert AirflowGraph().maker(ObjectRef(session, OBJECT_ID, key)) is None


def test_requests_and_answers_travel_as_json() -> None:
    request = Request((("load", -1), ("grow", 3)), "policy.yaml:3")
    assert Request.from_json(json.loads(json.dumps(request.to_json()))) == request
    answer = Answer(request.id, (("load", -1),), (("grow", 3),))
    assert Answer.from_json(json.loads(json.dumps(answer.to_json()))) == answer
    assert format_instances(request.tasks) == "load, grow[3]"
    assert format_instances(()) == "none"


@pytest.mark.parametrize("data", [None, 7, "text", {}, {"v": 1}, {"v": 2, "id": "x", "rule": "", "tasks": []}])
def test_an_invalid_request_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="invalid rerun request"):
        Request.from_json(data)
    assert Answer.from_json(data) is None


def test_an_invalid_duration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__ENTREPOT__RERUN_TIMEOUT", "soon")
    with pytest.raises(InvalidArgument, match="rerun_timeout must be a time such as '60s', not 'soon'"):
        rerun_client._timeout()  # pyright: ignore[reportPrivateUsage]


def test_a_wrong_policy_fails_tasks_and_leaves_the_import_of_dags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from entrepot_airflow import cluster_policy

    task = SimpleNamespace(dag_id="etl", task_id="load", retries=3)
    file = write_policy(tmp_path, monkeypatch, "version: 1\nfailover:\n  - {on: object_lots, do: [fail]}\n")
    for _ in range(2):
        cluster_policy.task_policy(task)
    assert not hasattr(cluster_policy, "dag_policy")
    assert task.retries == 3
    assert [f"{file}:3:" in record.getMessage() for record in caplog.records] == [True]  # logged only once
    with pytest.raises(PolicyError, match=f"{file}:3:"):
        cluster_policy.get_airflow_context_vars({"ti": None})
    monkeypatch.setenv("ENTREPOT_POLICY", str(tmp_path / "none.yaml"))
    cluster_policy.task_policy(task)
    with pytest.raises(InvalidArgument, match=r"none\.yaml"):
        cluster_policy.get_airflow_context_vars({"ti": None})


def test_importing_the_backend_first_warns_of_nothing(tmp_path: Path) -> None:
    """Airflow imports its XCom backend while modules that the backend needs are still being imported."""
    code = (
        "from entrepot_airflow import EntrepotXComBackend\n"
        "from airflow.sdk.execution_time.xcom import XCom\n"
        "assert XCom is EntrepotXComBackend, XCom\n"
    )
    environment = os.environ | {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__XCOM_BACKEND": "entrepot_airflow.EntrepotXComBackend",
    }
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100)
    assert process.returncode == 0, process.stderr
    assert "warning" not in (process.stdout + process.stderr).lower()


def test_a_policy_that_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_policy(tmp_path, monkeypatch, "version: 1\n")
    first = policy_runtime.validated_policy()
    assert policy_runtime.validated_policy() is first
    assert first is not None
    assert not first.failover
    file.write_text("version: 1\nfailover: [{on: task_failed, do: [fail]}]\n")
    second = policy_runtime.validated_policy()
    assert second is not None
    assert len(second.failover) == 1
    monkeypatch.setenv("ENTREPOT_POLICY__EVENTS__ENABLED", "false")
    third = policy_runtime.validated_policy()
    assert third is not None
    assert not third.events.enabled


def test_rules_about_failed_tasks_set_their_retries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pendulum
    from airflow.sdk import DAG, task
    from entrepot_airflow import PolicyRetries
    from entrepot_airflow.cluster_policy import task_policy

    write_policy(
        tmp_path,
        monkeypatch,
        """
version: 1
failover:
  - {on: task_failed, match: train, do: [{retry: {attempts: 4, delay: 7s}}]}
  - {on: task_failed, match: {tag: strict, task: "s*"}, do: [fail]}
""",
    )
    with DAG("etl", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), tags=["strict"]) as dag:
        task(task_id="train")(count_values)([])
        task(task_id="score", retries=3)(count_values)([])
        task(task_id="other", retries=3)(count_values)([])
    for operator in dag.tasks:
        task_policy(operator)
    train, score, other = (dag.get_task(name) for name in ("train", "score", "other"))
    assert (train.retries, train.retry_delay.total_seconds()) == (4, 7.0)
    assert isinstance(train.retry_policy, PolicyRetries)
    assert score.retries == 0
    assert other.retries == 3
    assert other.retry_policy is None


def test_targets_are_probed_when_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    text = f"""
version: 1
targets:
  broken: {{url: "{tmp_path}/file/x", FALLBACK}}
  whole: {{url: "{tmp_path}/whole"}}
checkpoint: {{target: broken, rules: [{{match: "*"}}]}}
"""
    file = write_policy(tmp_path, monkeypatch, text.replace(", FALLBACK", ""))
    checked_policy = policy_runtime.validated_policy()
    assert checked_policy is not None
    with pytest.raises(PolicyError, match=f"{file}:4:.*cannot be written"):
        policy_runtime.probe_targets(checked_policy)
    write_policy(tmp_path, monkeypatch, text.replace("FALLBACK", "fallback: whole"))
    checked_policy = policy_runtime.validated_policy()
    assert checked_policy is not None
    policy_runtime.probe_targets(checked_policy)


def test_the_provider_info_lists_options_and_notifications() -> None:
    info = get_provider_info()
    assert info["notifications"] == ["entrepot_airflow.callbacks.FailoverNotifier"]
    assert {"policy", "rerun_timeout"} <= info["config"]["entrepot"]["options"].keys()


def test_the_entry_points_can_be_loaded() -> None:
    from importlib.metadata import entry_points

    for group in ("airflow.plugins", "airflow.policy"):
        (entry_point,) = entry_points(group=group, name="entrepot")
        assert entry_point.load() is not None


def test_policy_records_are_in_the_runs_session(backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy's records live in the run's session, next to its values, and are deleted with it."""
    write_policy(tmp_path, monkeypatch, "version: 1\n")
    entry = Reference.parse(database_entry(backend, np.arange(1000)))
    names = [name for info in scope_store(None, "tests").session(entry.session).list() for name in info.names]
    assert any(name.startswith("entrepot.lineage/") for name in names)
