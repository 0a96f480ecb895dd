"""Airflow's private names exist, and each function of the plugin's compat package does what it promises.

Most functions need a task's process or the database; compat_dags.py calls those within a real DAG run.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from entrepot_airflow.compat import components, mapping, task_process
from entrepot_airflow.compat.private_names import PRIVATE_NAMES
from entrepot_io.private_names import PrivateName
from recorded_steps import StepResults

sys.path.insert(0, str(Path(__file__).parents[1] / "repo"))

from tool_modules import load_tool

DAGS = Path(__file__).with_name("compat_dags.py")


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/check_private_names.py as a module."""
    return load_tool("check_private_names", monkeypatch)


def test_the_installed_airflow_has_the_private_names(checker: ModuleType) -> None:
    assert checker.missing_names(PRIVATE_NAMES, metadata.version("apache-airflow-core")) == []


@pytest.mark.parametrize(
    ("module", "attribute"),
    [
        ("airflow.models.invented", ""),
        ("airflow.sdk.execution_time.comms", "InventXCom"),
        ("airflow.models.xcom", "XComModel.invented"),
        ("airflow.sdk.definitions.taskgroup", "MappedTaskGroup._invented"),
    ],
)
def test_an_invented_name_is_reported(checker: ModuleType, module: str, attribute: str) -> None:
    invented = PrivateName(module, attribute, "test")
    (line,) = checker.missing_names([*PRIVATE_NAMES, invented], metadata.version("apache-airflow-core"))
    assert line.startswith(f"{invented.text}: ")


# --- components


def test_the_scheduler_is_told_from_other_components() -> None:
    from airflow.jobs.job import Job
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
    from airflow.sdk.execution_time.task_runner import TaskRunnerMarker

    new_job: Any = Job  # untyped
    job, marker = new_job(), TaskRunnerMarker()
    assert (components.is_job(job), components.is_task_runner(job)) == (True, False)
    assert (components.is_job(marker), components.is_task_runner(marker)) == (False, True)
    assert components.job_kind(job) is None
    SchedulerJobRunner(job=job)
    assert components.job_kind(job) == components.SCHEDULER_KIND


# --- mapping


def mapped_dag() -> Any:
    from airflow.sdk import DAG, task, task_group

    with DAG("mapped", schedule=None) as dag:

        @task
        def sizes() -> list[int]:
            return [1, 2]

        @task
        def grow(size: int) -> int:
            return size

        @task_group
        def group(size: int) -> None:
            grow(size)

        grow.override(task_id="each").expand(size=sizes())
        group.expand(size=dag.task_dict["sizes"].output)
    return dag


def test_what_a_mapped_task_is_expanded_over_is_found() -> None:
    dag = mapped_dag()
    tasks = dag.task_dict
    assert [(task.task_id, key) for task, key in mapping.expanded_references(tasks["each"])] == [
        ("sizes", "return_value")
    ]
    group = tasks["group.grow"].get_closest_mapped_task_group()
    assert [(task.task_id, key) for task, key in mapping.group_references(group)] == [("sizes", "return_value")]


def test_what_a_serialized_task_is_expanded_over_is_found() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    serialized = DagSerialization.from_dict(DagSerialization.to_dict(mapped_dag()))
    (value,) = mapping.expanded_values(serialized.get_task("each")).values()
    assert (value.operator.task_id, value.key) == ("sizes", "return_value")


# --- task_process, without a supervisor


def test_a_reschedule_is_raised_and_not_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    from airflow.sdk.definitions._internal import templater
    from airflow.sdk.exceptions import AirflowRescheduleException

    with pytest.raises(AirflowRescheduleException):
        task_process.reschedule(timedelta(seconds=1))
    logger = logging.getLogger(templater.__name__)
    reschedule: Any = AirflowRescheduleException  # untyped
    for error in (reschedule(None), ValueError("wrong")):
        try:
            raise error
        except Exception:
            logger.exception("rendering failed: %s", type(error).__name__)
    assert "ValueError" in caplog.text
    assert "AirflowRescheduleException" not in caplog.text


def test_outside_of_tasks_nothing_was_rescheduled() -> None:
    assert task_process.reschedule_count(object()) == 0
    assert not task_process.is_dag_test()


def test_the_lookup_of_the_backend_is_imported() -> None:
    task_process.import_backend_lookup()
    assert "airflow.sdk.execution_time.xcom" in sys.modules


# --- task_process, database and task_instances, within a DAG run


@pytest.fixture(scope="module")
def compat_results(run_dags: Callable[..., StepResults], tmp_path_factory: pytest.TempPathFactory) -> StepResults:
    """Results of compat_dags.py."""
    home = tmp_path_factory.mktemp("airflow")
    return run_dags(DAGS, home, AIRFLOW__CORE__DAGS_FOLDER=str(DAGS), SEEN=str(home))


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("is dag.test", True),
        ("reschedules", 0),
        ("other task's XCom", 41),
        ("missing XCom", None),
        ("own XCom", {"asked": 1}),
        ("own XCom, deleted", None),
    ],
)
@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(700)
def test_within_a_task(compat_results: StepResults, what: str, expected: Any) -> None:
    assert compat_results.value("state") == "success", compat_results.output[-20_000:]
    assert compat_results.value("task")[what] == expected


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("run states", [["compat", "success"]]),
        ("DAGs", ["compat"]),
        ("locked XComs", [["second", -1, {"asked": 2}]]),
        ("answered", [["second", "answer", {"answered": True}], ["second", "request", {"asked": 2}]]),
        ("instances", [["first", -1], ["second", -1]]),
        ("instance of the XCom", "second"),
        ("finished", [True, False]),
        ("running", [False, True]),
        ("cleared", [["first", None], ["second", "success"]]),
        ("audited", [["first", "compat_test", "a test", "why"]]),
        ("upstream of second", ["first"]),
        ("missing task", None),
        ("released", {"rescheduled": True, "state": None, "another attempt": True, "more tries": 1}),
        ("history", ["up_for_reschedule"]),
    ],
)
@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(700)
def test_in_the_database_of_a_dag_run(compat_results: StepResults, what: str, expected: Any) -> None:
    assert compat_results.value("state") == "success", compat_results.output[-20_000:]
    assert compat_results.value("database")[what] == expected
