"""Steps, the daemon and both, killed or stopped in the multiprocess executor, with Dagster's own retries alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import entrepot
import pytest
from dagster import DagsterEventType, DagsterInstance, JobExecutionResult, ReexecutionOptions, RunsFilter, execute_job
from dagster._core.definitions.reconstruct import ReconstructableJob
from entrepot_io.connections import close_all
from suspension import state_of

pytestmark = [
    pytest.mark.usefixtures("own_store"),
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.timeout(300),
]

JOB = ReconstructableJob.for_file(str(Path(__file__).with_name("faulty_jobs.py")), "struck")
PROGRAM = Path(__file__).with_name("faulty_run.py")
LONGEST_TIME_OUT = 35.0  # a client waits 30 s for the daemon
ANSWER = 100_000 * 99_999
RETRIED = DagsterEventType.STEP_UP_FOR_RETRY


@pytest.fixture
def config(daemon: Any, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """``config(words, step)``: the configuration of a run one of whose steps does this on its first attempt."""

    def run_config(words: str, step: str = "doubled") -> dict[str, Any]:
        strike = {"words": words.split(), "address": daemon.address, "pid_file": str(tmp_path / "pid")}
        if "-run" in words:
            strike["run_pid_file"] = str(tmp_path / "run-pid")
        resources = {"io_manager": {"config": {"address": daemon.address}}}
        return {"ops": {step: {"config": strike}}, "resources": resources}

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


STEPS = ("numbers", "doubled", "total")
KILLS = ("exception", "kill-step", "kill-daemon", "kill-daemon exception", "kill-daemon kill-step", "kill-keeper")
KILLED = [
    pytest.param(what, step, marks=[] if step == "doubled" else [pytest.mark.exhaustive])
    for step in STEPS
    for what in KILLS
]


@pytest.mark.parametrize(("what", "step"), KILLED)
def test_a_retry_gets_what_was_stored(
    what: str, step: str, config: Callable[..., dict[str, Any]], instance: DagsterInstance
) -> None:
    """The keeper holds the memory, and starts another daemon; the daemon starts another keeper."""
    with execute_job(JOB, instance=instance, run_config=config(what, step)) as result:
        assert result.success, errors(result)
        assert result.output_for_node("total") == ANSWER
        assert retries(result) == ([] if what in ("kill-daemon", "kill-keeper") else [step])


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


@contextmanager
def run_in_a_process(folder: Path, run_config: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs the job in the instance of DAGSTER_HOME."""
    (folder / "run-config.json").write_text(json.dumps(run_config))
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[] if step == "doubled" else [pytest.mark.exhaustive]) for step in STEPS]
)
def test_a_run_whose_process_was_killed_is_executed_again_from_there(
    step: str,
    config: Callable[..., dict[str, Any]],
    instance: DagsterInstance,
    tmp_path: Path,
    wait_until: Callable[..., None],
) -> None:
    """What its steps have stored is read by the re-execution; Dagster's monitoring of runs says that it has failed."""
    with run_in_a_process(tmp_path, config("kill-run kill-step", step)) as process:
        assert process.wait(120) == -signal.SIGKILL, (tmp_path / "run.log").read_text()
    (run,) = instance.get_runs()
    instance.report_run_failed(run, "the process of the run was killed")
    options = ReexecutionOptions.from_failure(run.run_id, instance)
    with execute_job(JOB, instance=instance, run_config=config(""), reexecution_options=options) as resumed:
        assert resumed.success, errors(resumed)
        assert resumed.output_for_node("total") == ANSWER
        again = {event.step_key for event in resumed.all_events if event.event_type is DagsterEventType.STEP_SUCCESS}
    assert again == set(STEPS[STEPS.index(step) :])


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ["run", "step", "keeper", "daemon"])
def test_a_process_that_stood_still_longer_than_every_time_out(
    name: str,
    step: str,
    config: Callable[..., dict[str, Any]],
    instance: DagsterInstance,
    tmp_path: Path,
    wait_until: Callable[..., None],
) -> None:
    """A run, a step and a keeper go on where they were; of a daemon, the attempt that waited for it is retried."""
    pid_file = tmp_path / "pid"
    with run_in_a_process(tmp_path, config(f"stop-{name}", step)) as process:
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), "the strike", 120)
        pid = int(pid_file.read_text())
        try:
            wait_until(lambda: state_of(pid) == "T", f"the stop of the {name}", 60)
            stopped = time.monotonic()
            wait_until(lambda: time.monotonic() > stopped + LONGEST_TIME_OUT, "the end of the time-outs", 200)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert process.wait(120) == 0, (tmp_path / "run.log").read_text()
    assert json.loads((tmp_path / "answer.json").read_text()) == ANSWER
    (run,) = instance.get_runs()
    retried = [entry.step_key for entry in instance.all_logs(run.run_id, of_type=RETRIED)]
    assert retried == ([step] if name == "daemon" else [])


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3))
def test_daemon_and_keeper_are_killed_again_and_again(
    seed: int,
    config: Callable[..., dict[str, Any]],
    instance: DagsterInstance,
    tmp_path: Path,
    daemon: Any,
    wait_until: Callable[..., None],
) -> None:
    """Never both at once: the other starts it again, and no step notices, whatever it is doing."""
    chosen = random.Random(seed)

    def processes() -> dict[str, int]:
        with entrepot.connect(daemon.address, scope="faults") as store:
            status = store.status()
        return {"daemon": status["pid"], "keeper": status["keeper_pid"]}

    kills = 0
    with run_in_a_process(tmp_path, config("")) as process:
        while process.poll() is None:
            time.sleep(chosen.uniform(0, 0.3))  # no condition: any moment of the run is as good as another
            before = processes()
            name = chosen.choice(["daemon", "keeper"])
            os.kill(before[name], signal.SIGKILL)
            kills += 1
            wait_until(lambda: processes()[name] not in (0, before[name]), f"another {name}", 60)  # noqa: B023
        assert process.returncode == 0, (tmp_path / "run.log").read_text()
    assert json.loads((tmp_path / "answer.json").read_text()) == ANSWER
    assert kills >= 3
    (run,) = instance.get_runs()
    assert instance.all_logs(run.run_id, of_type=RETRIED) == []
    with entrepot.connect(daemon.address, scope="faults") as store:
        status = store.status()
    assert (status["pinned_bytes"], status["leased_bytes"]) == (0, 0)
