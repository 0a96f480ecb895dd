"""Executors: steps that are forked from a server, and steps that are commands of their own.

Steps in the run's process and spawned ones are in test_jobs.py, those of dagster-k8s's executor in
tests/orchestrator_pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, execute_job
from dagster._core.definitions.reconstruct import ReconstructableJob

pytestmark = [pytest.mark.usefixtures("own_store"), pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
FORKED: dict[str, Any] = {
    "multiprocess": {"max_concurrent": 2, "start_method": {"forkserver": {"preload_modules": ["entrepot_dagster"]}}}
}


def test_a_command_for_each_step(instance: DagsterInstance) -> None:
    job = ReconstructableJob.for_file(str(HERE / "isolated_steps.py"), "isolated")
    with execute_job(job, instance=instance) as result:
        assert result.success, [event.message for event in result.all_events if event.is_failure]
        assert result.output_for_node("total") == [2 * 10_000, 3]


@pytest.fixture
def no_fork_server() -> Iterator[None]:
    """A server that another test in this process has started has that test's environment, and so its store."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("no_fork_server")
def test_steps_that_are_forked_from_a_server(instance: DagsterInstance) -> None:
    """In the server, the plugin is imported already."""
    job = ReconstructableJob.for_file(str(HERE / "jobs.py"), "dynamic")
    with execute_job(job, instance=instance, run_config={"execution": {"config": FORKED}}) as result:
        assert result.success
        assert result.output_for_node("total") == 60_000
