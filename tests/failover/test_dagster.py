"""The fault matrix on Dagster: a job with the multiprocess executor, in an instance with storage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import faults
import pipeline as work
from dagster import DagsterEventType, DagsterInstance, DagsterRun
from dagster_host import TIMEOUT_SECONDS, JobProcess, create_instance_folder
from entrepot_dagster.policy.policy_runtime import get_binding
from entrepot_dagster.sensors import count_killed_steps
from entrepot_dagster.values.keys import default_scope
from entrepot_io.connections import close_all
from entrepot_policy.state.events import log_file, read_events
from faults import MATRIX, ONCE, SHORT_MATRIX

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]
FULL_MATRIX = os.environ.get("ENTREPOT_FAULT_MATRIX") == "full"
# Dagster's default, a fresh interpreter for each step, takes a minute per case.
SPAWN_CASES = (("task_killed", "rerun"), ("exception", "rerun"), ("store_killed", "rerun"))
CASES = [(*case, "forkserver") for case in (MATRIX if FULL_MATRIX else SHORT_MATRIX)]
CASES += [(*case, "spawn") for case in SPAWN_CASES if FULL_MATRIX]
# One process for all steps: killing a step would kill the host process.
SURVIVABLE_CASES = [case for case in MATRIX if not case[0].startswith("task_killed")]
IN_PROCESS_CASES = [("store_killed", "rerun"), ("private_killed", "rerun"), ("private_killed", "checkpoints")]
CASES += [(*case, "in_process") for case in (SURVIVABLE_CASES if FULL_MATRIX else IN_PROCESS_CASES)]
# Runs that the policy lets fail: tasks after the fault never begin; `join` does if the exception is its own.
FAILED_RUNS = {
    "exception": {"report": 0},
    "object_lost": {"join": 0, "report": 0},
    "store_killed": {"join": 0, "report": 0},
}
# The policy's one retry of the killed step is not enough: it is killed again, and a user reruns it.
EXTRA_RUNS = {("task_killed_on_last_try", "rerun"): {"join": 3}}
STORE_VARIABLES = (
    "ENTREPOT_ADDRESS",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "ENTREPOT_PRIVATE_SIZE",
    "ENTREPOT_PRIVATE_IDLE_EXIT_SECONDS",
)
ENGINE_EVENT = DagsterEventType.ENGINE_EVENT


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], JobProcess]]:
    """``hosts(start)``: the host process with this start method, started on first use.

    A host that ended or hung in one test is replaced for the next.
    """
    started: dict[str, JobProcess] = {}

    def get_process(start: str) -> JobProcess:
        if start in started and not started[start].is_usable:
            started.pop(start).stop()
        if start not in started:
            started[start] = JobProcess(tmp_path_factory.mktemp(f"host-{start}"), start)
        return started[start]

    yield get_process
    for job_process in started.values():
        job_process.stop()


@dataclass
class FaultRun:
    """One run of the pipeline under a fault.

    Attributes:
        folder: directory of faults, journal and result.
        address: address of the store; "": the private one.
        socket_folder: directory with a short path.
        settings: environment variables.
    """

    folder: Path
    address: str
    socket_folder: Path
    settings: dict[str, str] = field(default_factory=dict[str, str])

    def prepare(self, fault: str, policy: str, target: Path, small: Path | None) -> None:
        if fault == "private_killed":
            self.address = ""
        file = faults.prepare_case(self.folder, fault, policy, self.address, target, small)
        # One process runs many cases, so overwrite what an earlier case set.
        store_variables = (
            {"ENTREPOT_ADDRESS": self.address} if self.address else faults.private_store_variables(self.socket_folder)
        )
        self.settings = {
            **dict.fromkeys(STORE_VARIABLES, ""),
            **store_variables,
            "ENTREPOT_POLICY": str(file),
            "ENTREPOT_EVENTS": str(self.folder / "events"),
            work.FOLDER_VARIABLE: str(self.folder),
        }
        if self.address:
            faults.start_store(self.folder, self.address)

    def execute(self, *command: str) -> tuple[int, str]:
        """Run a command to its end; return its exit code and output."""
        process = subprocess.run(
            [sys.executable, *command],
            env=os.environ | self.settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        return process.returncode, process.stdout

    def event_kinds(self, instance: DagsterInstance) -> list[str]:
        return [event.kind for event in read_events(log_file(default_scope(instance), self.folder / "events"))]

    def answer(self) -> str:
        return (self.folder / "answer").read_text()


@pytest.fixture
def bench(tmp_path: Path, socket_folder: Path) -> Iterator[FaultRun]:
    fault_run = FaultRun(tmp_path / "work", f"unix://{socket_folder}/store.sock", socket_folder)
    yield fault_run
    close_all()
    faults.stop_stores(fault_run.folder)
    faults.stop_private_store(socket_folder)


@pytest.fixture
def small(tmp_path: Path, small_disk: Callable[[Path, int], AbstractContextManager[str]]) -> Iterator[Path]:
    """Directory on a disk that is full after 64 KiB."""
    with small_disk(tmp_path / "small", 64 << 10) as refused:
        if refused:
            pytest.skip(refused)
        yield tmp_path / "small"


def get_run(instance: DagsterInstance, run_id: str) -> DagsterRun:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run


def has_succeeded(instance: DagsterInstance, run_id: str) -> bool:
    return get_run(instance, run_id).is_success


def failure_messages(instance: DagsterInstance, run_id: str) -> str:
    """Messages of a run's failed steps and of the errors in their logs."""
    messages = []
    for entry in instance.all_logs(run_id, of_type=DagsterEventType.STEP_FAILURE):
        error = entry.get_dagster_event().step_failure_data.error
        while error is not None:
            messages.append(f"{error.cls_name}: {error.message}")
            error = error.cause
    messages += [entry.user_message for entry in instance.all_logs(run_id) if not entry.is_dagster_event]
    return "\n".join(messages)


def metadata_by_step(
    instance: DagsterInstance, run_ids: list[str], kind: DagsterEventType
) -> dict[str, dict[str, Any]]:
    """Metadata that Dagster shows for the outputs or inputs of all runs, by step."""
    by_step: dict[str, dict[str, Any]] = {}
    for run_id in run_ids:
        for entry in instance.all_logs(run_id, of_type=kind):
            entries = getattr(entry.get_dagster_event().event_specific_data, "metadata", {})
            by_step.setdefault(entry.step_key or "", {}).update({key: value.value for key, value in entries.items()})
    return by_step


@pytest.mark.parametrize(("fault", "policy", "start"), CASES)
def test_a_fault(
    bench: FaultRun,
    hosts: Callable[[str], JobProcess],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    policy: str,
    start: str,
) -> None:
    small = request.getfixturevalue("small") if policy == "disk_full" else None
    bench.prepare(fault, policy, tmp_path / "target", small)
    outcome, job_process = MATRIX[fault, policy], hosts(start)
    log_size = job_process.log.stat().st_size
    runs = job_process.run(bench.settings)
    monkeypatch.setenv("ENTREPOT_EVENTS", bench.settings["ENTREPOT_EVENTS"])
    with DagsterInstance.from_config(str(job_process.home)) as instance:
        policy_binding = get_binding(
            bench.settings["ENTREPOT_POLICY"], default_scope(instance), bench.address, instance
        )
        assert policy_binding is not None
        if fault == "task_killed_on_last_try":
            assert not has_succeeded(instance, runs[-1])
            count_killed_steps(policy_binding, instance, get_run(instance, runs[-1]))
            assert "task_failed" in bench.event_kinds(instance), "no hook reported it; the sensor does"
            faults.stop_killing(bench.folder)
            runs += job_process.run(bench.settings, runs[-1])
        messages = failure_messages(instance, runs[-1])
        kinds = bench.event_kinds(instance)
        outputs = metadata_by_step(instance, runs, DagsterEventType.HANDLED_OUTPUT)
        inputs = metadata_by_step(instance, runs, DagsterEventType.LOADED_INPUT)
        succeeded = has_succeeded(instance, runs[-1])
    if fault in ("store_killed", "private_killed"):
        # Logged once by a process that used the lost store: not by each step, nor by each attempt. Step processes that
        # begin later never used it.
        warnings = job_process.log_text(log_size).count("which this process now uses")
        assert warnings == 1 if start == "in_process" else warnings <= 1, job_process.log_tail()
    start_counts = work.start_counts(bench.folder)
    expected = outcome.runs | EXTRA_RUNS.get((fault, policy), {})
    if outcome.reason:
        assert not succeeded
        assert outcome.reason in messages
        assert start_counts == expected | FAILED_RUNS[fault], messages
        assert kinds[-1] == "gave_up"
        return
    assert succeeded, job_process.log_tail()
    assert bench.answer() == str(work.ANSWER)
    assert start_counts == expected, job_process.log_tail()
    assert set(outcome.events) <= set(kinds)
    if policy in ("checkpoints", "disk_full"):
        assert str(tmp_path / "target") in outputs["left"]["entrepot/checkpoint"]
        assert "policy.yaml:" in outputs["left"]["entrepot/rule"]
    if "reloaded" in outcome.events:
        assert str(tmp_path / "target") in inputs["join"]["entrepot/recovered"]
    if "rerun_planned" in kinds:
        assert len(runs) == 2, "one re-execution serves all that was lost"


@pytest.fixture
def services(bench: FaultRun) -> Iterator[Callable[..., None]]:
    """``services("daemon", ...)``: start a Dagster service that runs until the end of the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        with (bench.folder / "services.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                env=os.environ | bench.settings,
                cwd=bench.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)

    yield start
    for process in started:
        process.terminate()
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.skipif(not FULL_MATRIX, reason="needs a daemon and code servers: ENTREPOT_FAULT_MATRIX=full")
def test_the_sensor_re_executes_what_was_lost(
    bench: FaultRun, tmp_path: Path, services: Callable[..., None], wait_until: Callable[..., None]
) -> None:
    """With Dagster's daemon, its run queue and a code server, without user action."""
    bench.prepare("object_lost", "rerun", tmp_path / "target", None)
    folder = create_instance_folder(
        tmp_path / "home",
        "run_coordinator:\n  module: dagster._core.run_coordinator\n  class: QueuedRunCoordinator\n"
        "  config: {dequeue_interval_seconds: 1}\n",
    )
    bench.settings["DAGSTER_HOME"] = str(folder)
    jobs = str(Path(__file__).with_name("dagster_jobs.py"))
    with DagsterInstance.from_config(str(folder)) as instance:
        assert not instance.get_runs()
        assert not instance.all_instigator_state()  # creates its tables, which two processes must not do at once
        services("-m", "dagster._daemon", "run", "-f", jobs)

        def has_cursor() -> bool:
            states = {state.name: state.instigator_data for state in instance.all_instigator_state()}
            return getattr(states.get("entrepot_failover"), "cursor", None) is not None

        def finished_runs() -> list[DagsterRun]:
            return [run for run in instance.get_runs() if run.is_finished]

        wait_until(has_cursor, "the sensor's first look", TIMEOUT_SECONDS)
        code, output = bench.execute("-m", "dagster", "job", "launch", "-f", jobs, "-j", "flow")
        assert code == 0, output
        wait_until(lambda: any(run.is_success for run in finished_runs()), "a run that succeeds", TIMEOUT_SECONDS)
        runs = finished_runs()
        assert [run.is_success for run in runs] == [True, False]
        assert runs[0].parent_run_id == runs[1].run_id
        assert sorted(runs[0].step_keys_to_execute or ()) == ["join", "left", "report"]
        messages = [
            entry.get_dagster_event().message for entry in instance.all_logs(runs[1].run_id, of_type=ENGINE_EVENT)
        ]
        assert any("Entrepot re-executes left, join, report" in str(message) for message in messages)
    assert work.start_counts(bench.folder) == ONCE | {"left": 2}
    assert bench.answer() == str(work.ANSWER)


def test_the_command_resumes_a_failed_dagster_job_execute(bench: FaultRun, tmp_path: Path) -> None:
    bench.prepare("store_killed", "rerun", tmp_path / "target", None)
    bench.settings["DAGSTER_HOME"] = str(create_instance_folder(tmp_path / "home"))
    jobs = str(Path(__file__).with_name("dagster_jobs.py"))
    code, output = bench.execute("-m", "dagster", "job", "execute", "-f", jobs, "-j", "flow")
    assert code != 0
    assert "python -m entrepot_dagster rerun RUN_ID" in output
    code, output = bench.execute("-m", "entrepot_dagster", "rerun", "--last")
    assert code == 0, output
    assert "succeeded" in output
    assert work.start_counts(bench.folder) == MATRIX["store_killed", "rerun"].runs
    assert bench.answer() == str(work.ANSWER)
