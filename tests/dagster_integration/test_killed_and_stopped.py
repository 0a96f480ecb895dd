"""Steps, the daemon and both, killed or stopped in the multiprocess executor, with Dagster's own retries alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterEventType, DagsterInstance, JobExecutionResult, ReexecutionOptions, RunsFilter, execute_job
from dagster._core.definitions.reconstruct import ReconstructableJob
from entrepot_io.connections import close_all

pytestmark = [
    pytest.mark.usefixtures("own_store"),
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.timeout(300),
]

JOB = ReconstructableJob.for_file(str(Path(__file__).with_name("faulty_jobs.py")), "struck")
ANSWER = 100_000 * 99_999
RETRIED = DagsterEventType.STEP_UP_FOR_RETRY


@pytest.fixture
def config(daemon: Any, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """``config(words)``: the configuration of a run whose second step does this on its first attempt."""

    def run_config(words: str) -> dict[str, Any]:
        strike = {"words": words.split(), "address": daemon.address, "pid_file": str(tmp_path / "pid")}
        resources = {"io_manager": {"config": {"address": daemon.address}}}
        return {"ops": {"doubled": {"config": strike}}, "resources": resources}

    return run_config


def errors(result: JobExecutionResult) -> str:
    """Types and messages of the failed steps' errors."""
    texts: list[str] = []
    for event in result.all_events:
        if event.event_type in (DagsterEventType.STEP_FAILURE, RETRIED):
            error: Any = getattr(event.event_specific_data, "error", None)
            while error is not None:
                texts.append(f"{error.cls_name}: {error.message}")
                error = error.cause
    return "\n".join(texts)


def retries(result: JobExecutionResult) -> list[str | None]:
    return [event.step_key for event in result.all_events if event.event_type is RETRIED]


@pytest.mark.parametrize(
    "what", ["exception", "kill-step", "kill-daemon", "kill-daemon exception", "kill-daemon kill-step"]
)
def test_a_retry_gets_what_was_stored(
    what: str, config: Callable[[str], dict[str, Any]], instance: DagsterInstance
) -> None:
    """The keeper holds the memory, and starts another daemon."""
    with execute_job(JOB, instance=instance, run_config=config(what)) as result:
        assert result.success, errors(result)
        assert result.output_for_node("total") == ANSWER
        assert retries(result) == ([] if what == "kill-daemon" else ["doubled"])


def test_a_store_that_died_with_a_step_is_named_and_a_run_begins_anew(
    config: Callable[[str], dict[str, Any]], instance: DagsterInstance, daemon: Any
) -> None:
    with execute_job(JOB, instance=instance, run_config=config("kill-store kill-step")) as failed:
        assert not failed.success
        assert retries(failed) == ["doubled"]
        assert "StoreUnavailable" in errors(failed), errors(failed)
    close_all()
    daemon.start()
    harmless = config("")
    options = ReexecutionOptions.from_failure(failed.run_id, instance)
    with execute_job(JOB, instance=instance, run_config=harmless, reexecution_options=options) as resumed:
        assert not resumed.success, "what was only in the dead store's memory is lost, and nothing takes its place"
        assert "ended or was killed, and this is a new one" in errors(resumed), errors(resumed)
    options = ReexecutionOptions(failed.run_id)
    with execute_job(JOB, instance=instance, run_config=harmless, reexecution_options=options) as again:
        assert again.success, errors(again)
        assert again.output_for_node("total") == ANSWER


def test_a_daemon_that_stands_still_longer_than_the_time_out(
    config: Callable[[str], dict[str, Any]],
    instance: DagsterInstance,
    tmp_path: Path,
    wait_until: Callable[..., None],
) -> None:
    """The attempt fails with an error that says so; once the daemon goes on, the retry succeeds."""
    pid_file = tmp_path / "pid"

    def has_retried() -> bool:
        runs = instance.get_runs(RunsFilter(job_name="struck"))
        return any(instance.all_logs(run.run_id, of_type=RETRIED) for run in runs)

    def go_on() -> None:
        try:
            wait_until(has_retried, "the failure of the first attempt", 200)
        finally:
            os.kill(int(pid_file.read_text()), signal.SIGCONT)

    with ThreadPoolExecutor(1) as executor:
        gone_on = executor.submit(go_on)
        with execute_job(JOB, instance=instance, run_config=config("stop-daemon")) as result:
            gone_on.result(250)
            assert result.success, errors(result)
            assert result.output_for_node("total") == ANSWER
            assert retries(result) == ["doubled"]
            assert "did not respond within" in errors(result), errors(result)
