"""The fault matrix on Dagster: a job with the multiprocess executor, in an instance with storage."""

from __future__ import annotations

import json
import os
import select
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

import dagster_host
import faults
import pipeline as work
from dagster import DagsterEventType, DagsterInstance, DagsterRun
from entrepot_dagster.at_work import binding
from entrepot_dagster.places import default_scope
from entrepot_dagster.sensors import count_killed
from entrepot_io.connections import close_all
from entrepot_io.policy.events import log_file, read_events
from faults import MATRIX, ONCE, SHORT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]
FULL = os.environ.get("ENTREPOT_FAULT_MATRIX") == "full"
# Dagster's default, a fresh interpreter for each step, takes a minute per case.
SPAWNED = (("task_killed", "rerun"), ("exception", "rerun"), ("store_killed", "rerun"))
CASES = [(*case, "forkserver") for case in (MATRIX if FULL else SHORT)]
CASES += [(*case, "spawn") for case in SPAWNED if FULL]
# One process for all steps: killing a step would kill the host process.
ALIVE = [case for case in MATRIX if not case[0].startswith("task_killed")]
IN_PROCESS = [("store_killed", "rerun"), ("private_killed", "rerun"), ("private_killed", "checkpoints")]
CASES += [(*case, "in_process") for case in (ALIVE if FULL else IN_PROCESS)]
# Runs that the policy lets fail: tasks after the fault never begin; `join` does if the exception is its own.
FAILS = {"exception": {"report": 0}, "object_lost": {"join": 0, "report": 0}, "store_killed": {"join": 0, "report": 0}}
# The policy's one retry of the killed step is not enough: it is killed again, and a user reruns it.
OWN = {("task_killed_on_last_try", "rerun"): {"join": 3}}
SECONDS = 600.0
OF_THE_STORE = (
    "ENTREPOT_ADDRESS",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "ENTREPOT_PRIVATE_SIZE",
    "ENTREPOT_PRIVATE_IDLE_EXIT_SECONDS",
)
ENGINE = DagsterEventType.ENGINE_EVENT


class Host:
    """Process that runs the cases of this module, with step processes of one start method.

    Args:
        folder: directory of its instance and its log.
        start: ``forkserver`` or ``spawn``; ``in_process``: steps are not processes.
    """

    def __init__(self, folder: Path, start: str) -> None:
        self.home = home(folder / "home")
        self.log = folder / "host.log"
        self._cases = 0
        self._folder = folder
        variables = {"DAGSTER_HOME": str(self.home), "FAILOVER_START": start}
        variables[dagster_host.SETTINGS] = str(folder / "settings.json")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, dagster_host.__file__],
                env=os.environ | variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
                start_new_session=True,
            )

    def run(self, settings: dict[str, str], failed: str = "") -> list[str]:
        """Run a case; return the IDs of its runs."""
        self._cases += 1
        jobs = self._folder / f"case_{self._cases}.py"
        jobs.symlink_to(Path(__file__).with_name("dagster_jobs.py"))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"jobs": str(jobs), "settings": settings, "failed": failed}) + "\n")
        ready, _, _ = select.select([self._process.stdout], [], [], SECONDS)
        assert ready, f"no answer within {SECONDS:g} s:\n{self.said()}"
        line = self._process.stdout.readline()
        assert line, f"the host has ended:\n{self.said()}"
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer
        runs: list[str] = answer["runs"]
        return runs

    def said(self) -> str:
        """End of its log."""
        return self.log.read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """Stop it and the server of its step processes."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def home(folder: Path, more: str = "") -> Path:
    """Create a directory for a Dagster instance."""
    folder.mkdir()
    (folder / "dagster.yaml").write_text(f"telemetry:\n  enabled: false\n{more}")
    return folder


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Host]]:
    """``hosts(start)``: the host process with this start method, started on first use."""
    started: dict[str, Host] = {}

    def host(start: str) -> Host:
        if start not in started:
            started[start] = Host(tmp_path_factory.mktemp(f"host-{start}"), start)
        return started[start]

    yield host
    for one in started.values():
        one.stop()


@dataclass
class Bench:
    """One run of the pipeline under a fault.

    Attributes:
        folder: directory of faults, journal and result.
        address: address of the store; "": the private one.
        sockets: directory with a short path.
        settings: environment variables.
    """

    folder: Path
    address: str
    sockets: Path
    settings: dict[str, str] = field(default_factory=dict[str, str])

    def prepare(self, fault: str, policy: str, target: Path, small: Path | None) -> None:
        if fault == "private_killed":
            self.address = ""
        file = faults.prepare(self.folder, fault, policy, self.address, target, small)
        # One process runs many cases, so overwrite what an earlier case set.
        where = {"ENTREPOT_ADDRESS": self.address} if self.address else faults.private(self.sockets)
        self.settings = {
            **dict.fromkeys(OF_THE_STORE, ""),
            **where,
            "ENTREPOT_POLICY": str(file),
            "ENTREPOT_EVENTS": str(self.folder / "events"),
            work.FOLDER: str(self.folder),
        }
        if self.address:
            faults.start_store(self.folder, self.address)

    def execute(self, *command: str) -> tuple[int, str]:
        """Run a command to its end; return its exit code and output."""
        done = subprocess.run(
            [sys.executable, *command],
            env=os.environ | self.settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        return done.returncode, done.stdout

    def kinds(self, instance: DagsterInstance) -> list[str]:
        return [one.kind for one in read_events(log_file(default_scope(instance), self.folder / "events"))]

    def answer(self) -> str:
        return (self.folder / "answer").read_text()


@pytest.fixture
def bench(tmp_path: Path, socket_folder: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "work", f"unix://{socket_folder}/store.sock", socket_folder)
    yield made
    close_all()
    faults.end_stores(made.folder)
    faults.end_private(socket_folder)


@pytest.fixture
def small(tmp_path: Path, small_disk: Callable[[Path, int], AbstractContextManager[str]]) -> Iterator[Path]:
    """Directory on a disk that is full after 64 KiB."""
    with small_disk(tmp_path / "small", 64 << 10) as refused:
        if refused:
            pytest.skip(refused)
        yield tmp_path / "small"


def run_of(instance: DagsterInstance, run_id: str) -> DagsterRun:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run


def finished(instance: DagsterInstance, run_id: str) -> bool:
    return run_of(instance, run_id).is_success


def failures(instance: DagsterInstance, run_id: str) -> str:
    """Messages of a run's failed steps and of the errors in their logs."""
    said = []
    for entry in instance.all_logs(run_id, of_type=DagsterEventType.STEP_FAILURE):
        error = entry.get_dagster_event().step_failure_data.error
        while error is not None:
            said.append(f"{error.cls_name}: {error.message}")
            error = error.cause
    said += [entry.user_message for entry in instance.all_logs(run_id) if not entry.is_dagster_event]
    return "\n".join(said)


def metadata(instance: DagsterInstance, run_ids: list[str], kind: DagsterEventType) -> dict[str, dict[str, Any]]:
    """Metadata that Dagster shows for the outputs or inputs of all runs, by step."""
    found: dict[str, dict[str, Any]] = {}
    for run_id in run_ids:
        for entry in instance.all_logs(run_id, of_type=kind):
            said = getattr(entry.get_dagster_event().event_specific_data, "metadata", {})
            found.setdefault(entry.step_key or "", {}).update({key: one.value for key, one in said.items()})
    return found


@pytest.mark.parametrize(("fault", "policy", "start"), CASES)
def test_a_fault(
    bench: Bench,
    hosts: Callable[[str], Host],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    policy: str,
    start: str,
) -> None:
    small = request.getfixturevalue("small") if policy == "disk_full" else None
    bench.prepare(fault, policy, tmp_path / "target", small)
    outcome, host = MATRIX[fault, policy], hosts(start)
    runs = host.run(bench.settings)
    monkeypatch.setenv("ENTREPOT_EVENTS", bench.settings["ENTREPOT_EVENTS"])
    with DagsterInstance.from_config(str(host.home)) as instance:
        known = binding(bench.settings["ENTREPOT_POLICY"], default_scope(instance), bench.address, instance)
        assert known is not None
        if fault == "task_killed_on_last_try":
            assert not finished(instance, runs[-1])
            count_killed(known, instance, run_of(instance, runs[-1]))
            assert "task_failed" in bench.kinds(instance), "no hook told of it; the sensor does"
            faults.heal(bench.folder)
            runs += host.run(bench.settings, runs[-1])
        told = failures(instance, runs[-1])
        kinds = bench.kinds(instance)
        outputs = metadata(instance, runs, DagsterEventType.HANDLED_OUTPUT)
        inputs = metadata(instance, runs, DagsterEventType.LOADED_INPUT)
        good = finished(instance, runs[-1])
    began = work.runs(bench.folder)
    expected = outcome.runs | OWN.get((fault, policy), {})
    if outcome.reason:
        assert not good
        assert outcome.reason in told
        assert began == expected | FAILS[fault], told
        assert kinds[-1] == "gave_up"
        return
    assert good, host.said()
    assert bench.answer() == str(work.ANSWER)
    assert began == expected, host.said()
    assert set(outcome.events) <= set(kinds)
    if policy in ("checkpoints", "disk_full"):
        assert str(tmp_path / "target") in outputs["left"]["entrepot/checkpoint"]
        assert "policy.yaml:" in outputs["left"]["entrepot/rule"]
    if "reloaded" in outcome.events:
        assert str(tmp_path / "target") in inputs["join"]["entrepot/recovered"]
    if "rerun_planned" in kinds:
        assert len(runs) == 2, "one re-execution serves all that was lost"


@pytest.fixture
def services(bench: Bench) -> Iterator[Callable[..., None]]:
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


@pytest.mark.skipif(not FULL, reason="needs a daemon and code servers: ENTREPOT_FAULT_MATRIX=full")
def test_the_sensor_re_executes_what_was_lost(
    bench: Bench, tmp_path: Path, services: Callable[..., None], wait_until: Callable[..., None]
) -> None:
    """With Dagster's daemon, its run queue and a code server, without user action."""
    bench.prepare("object_lost", "rerun", tmp_path / "target", None)
    folder = home(
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

        def watches() -> bool:
            states = {state.name: state.instigator_data for state in instance.all_instigator_state()}
            return getattr(states.get("entrepot_failover"), "cursor", None) is not None

        def ended() -> list[DagsterRun]:
            return [run for run in instance.get_runs() if run.is_finished]

        wait_until(watches, "the sensor's first look", SECONDS)
        code, said = bench.execute("-m", "dagster", "job", "launch", "-f", jobs, "-j", "flow")
        assert code == 0, said
        wait_until(lambda: any(run.is_success for run in ended()), "a run that succeeds", SECONDS)
        runs = ended()
        assert [run.is_success for run in runs] == [True, False]
        assert runs[0].parent_run_id == runs[1].run_id
        assert sorted(runs[0].step_keys_to_execute or ()) == ["join", "left", "report"]
        noted = [entry.get_dagster_event().message for entry in instance.all_logs(runs[1].run_id, of_type=ENGINE)]
        assert any("Entrepot re-executes left, join, report" in str(one) for one in noted)
    assert work.runs(bench.folder) == ONCE | {"left": 2}
    assert bench.answer() == str(work.ANSWER)


def test_the_command_goes_on_with_what_dagster_job_execute_left(bench: Bench, tmp_path: Path) -> None:
    bench.prepare("store_killed", "rerun", tmp_path / "target", None)
    bench.settings["DAGSTER_HOME"] = str(home(tmp_path / "home"))
    jobs = str(Path(__file__).with_name("dagster_jobs.py"))
    code, said = bench.execute("-m", "dagster", "job", "execute", "-f", jobs, "-j", "flow")
    assert code != 0
    assert "python -m entrepot_dagster rerun RUN_ID" in said
    code, said = bench.execute("-m", "entrepot_dagster", "rerun", "--last")
    assert code == 0, said
    assert "succeeded" in said
    assert work.runs(bench.folder) == MATRIX["store_killed", "rerun"].runs
    assert bench.answer() == str(work.ANSWER)
