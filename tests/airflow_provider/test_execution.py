"""Setup and teardown, pulls from earlier runs, asynchronous tasks, ``airflow dags test``, and other versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_steps import StepResults

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

DAGS = Path(__file__).with_name("execution_dags.py")
SUM = sum(range(5000))


@pytest.fixture(scope="module")
def steps(run_dags: Callable[..., StepResults], tmp_path_factory: pytest.TempPathFactory) -> StepResults:
    """All DAGs of execution_dags.py, run once by an Airflow for this module."""
    return run_dags(DAGS, tmp_path_factory.mktemp("airflow"), AIRFLOW__CORE__DAGS_FOLDER=str(DAGS.parent))


def test_a_teardown_reads_what_its_setup_has_made_after_the_work_failed(steps: StepResults) -> None:
    seen = steps.value("surrounded")
    assert seen["states"] == {"provide": "success", "break_off": "failed", "remove": "success"}
    assert [seen["work"], seen["teardown"]] == [SUM, SUM]


def test_values_of_an_earlier_run_are_pulled_if_asked_for(steps: StepResults) -> None:
    nothing, of_the_first_run = steps.value("dated")
    assert nothing == [None, True]
    assert of_the_first_run == [0, True]


def test_asynchronous_tasks_get_and_return_values(steps: StepResults) -> None:
    state, values = steps.value("asynchronous")
    assert state == "success"
    assert values == [3, 3]


def test_airflow_dags_test_passes_values_on(steps: StepResults) -> None:
    assert steps.value("commanded") == f"ndarray {SUM}"


@pytest.mark.parametrize(
    ("phase", "failed", "read"), [("write", "first", None), ("read", "last", None), ("write after read", "last", SUM)]
)
def test_a_store_of_another_version_fails_the_task_with_advice(
    steps: StepResults, phase: str, failed: str, read: int | None
) -> None:
    seen = steps.value(phase)
    task_id, error, message = seen["failure"]
    assert (task_id, error) == (failed, "VersionMismatch")
    assert "install the same version of entrepot on both sides" in message
    assert seen["states"][failed] == "failed"
    assert seen["read"] == read
