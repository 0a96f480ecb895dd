"""The fault matrix on Airflow: all cases at once in one ``airflow standalone``, each with its own store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import airflow_dag
import airflow_server
import faults
import pipeline as work
from entrepot_policy.state.events import Event, log_file, read_events
from faults import MATRIX, SHORT_MATRIX, Outcome

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]
FULL_MATRIX = os.environ.get("ENTREPOT_FAULT_MATRIX") == "full"
SCOPE = "failover"
TIMEOUT_SECONDS = 600.0
ASYNC = ("none", "async")
INVALID = ("none", "wrong")
# In addition to the matrix: checkpoints that only the end of the run writes, and an invalid policy.
EXTRA_POLICIES = {
    "async": """
version: 1
checkpoint: {{target: "{target}/{{run}}", mode: async, rules: [{{match: {{task: [left, right]}}}}]}}
""",
    "wrong": 'version: 1\ncheckpoint: {{target: "{target}", rulez: []}}\n',
}
CASES = (*(MATRIX if FULL_MATRIX else SHORT_MATRIX), ASYNC, INVALID)


@dataclass
class Case:
    """One run.

    Attributes:
        dag_id: ID of its DAG.
        folder: directory of its faults, journal and events.
        address: address of its store; "": a private one.
        target: directory of its checkpoints.
        run: ID of the run.
        state: final state of the run.
        problem: why it could not be run to its end.
    """

    fault: str
    policy: str
    folder: Path
    address: str
    target: Path
    run: str = ""
    state: str = ""
    problem: str = ""

    @property
    def dag_id(self) -> str:
        return f"{self.fault}__{self.policy}"

    @property
    def outcome(self) -> Outcome:
        return MATRIX.get((self.fault, self.policy), Outcome())

    @property
    def events(self) -> list[Event]:
        return list(read_events(log_file(SCOPE, self.folder / "events")))

    @property
    def kinds(self) -> set[str]:
        return {event.kind for event in self.events}


Cases = dict[tuple[str, str], Case]


@pytest.fixture(scope="module")
def short_folder() -> Iterator[Path]:
    """For sockets, whose path length the kernel limits."""
    folder = Path(tempfile.mkdtemp(prefix="ea-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def small(
    tmp_path_factory: pytest.TempPathFactory, small_disk: Callable[[Path, int], AbstractContextManager[str]]
) -> Iterator[Path | None]:
    """Directory on a disk that is full after 64 KiB; None if none can be created here."""
    folder = tmp_path_factory.mktemp("small")
    with small_disk(folder, 64 << 10) as refused:
        yield None if refused else folder


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, short_folder: Path, small: Path | None) -> Iterator[Cases]:
    """All cases, with their stores, policies and DAG files."""
    faults.POLICIES.update(EXTRA_POLICIES)
    root = tmp_path_factory.mktemp("cases")
    (root / "dags").mkdir()
    by_fault: Cases = {}
    try:
        for number, (fault, policy) in enumerate(CASES):
            if policy == "disk_full" and small is None:
                continue
            folder = root / f"{fault}-{policy}"
            case = Case(fault, policy, folder, f"unix://{short_folder}/{number}", folder / "checkpoints")
            by_fault[fault, policy] = case
            with recording_problem(case):
                prepare_case(case, root / "dags", short_folder / f"p{number}", small)
        yield by_fault
    finally:
        for case in by_fault.values():
            faults.stop_stores(case.folder)
        for folder in short_folder.glob("p*"):
            faults.stop_private_store(folder)


@pytest.fixture(scope="module")
def airflow(
    cases: Cases, airflow_database: Callable[[], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[airflow_server.AirflowServer]:
    """Airflow after all runs have ended."""
    async_case = cases[
        ASYNC
    ]  # only the scheduler's process handles the end of this run, so it gets the same policy and store
    extra_variables = airflow_database() | {
        "AIRFLOW__ENTREPOT__SCOPE": SCOPE,
        "AIRFLOW__ENTREPOT__POLICY": str(async_case.folder / "policy.yaml"),
        "AIRFLOW__ENTREPOT__ADDRESS": async_case.address,
        "ENTREPOT_EVENTS": str(async_case.folder / "events"),
    }
    dags = async_case.folder.parent / "dags"
    all_cases = [case for case in cases.values() if not case.problem]
    dag_ids = {case.dag_id for case in all_cases}
    with airflow_server.running(tmp_path_factory.mktemp("airflow"), dags, extra_variables, dag_ids) as server:
        for case in all_cases:
            with recording_problem(case):
                case.run = server.start_run(case.dag_id)
        for case in all_cases:
            if not case.problem:
                with recording_problem(case):
                    finish_run(server, case)
        yield server


@contextmanager
def recording_problem(case: Case) -> Iterator[None]:
    """Let a problem with one case fail only the tests of that case."""
    try:
        yield
    except Exception as error:
        case.problem = f"{type(error).__name__}: {error}"


def prepare_case(case: Case, dags: Path, private_folder: Path, small: Path | None) -> None:
    """Start the store of a case, and write its policy and its DAG file."""
    if case.fault == "private_killed":
        case.address = ""
        # The address in Airflow's configuration is for the other cases.
        store_variables = faults.private_store_variables(private_folder) | {"AIRFLOW__ENTREPOT__ADDRESS": ""}
    else:
        store_variables = {"ENTREPOT_ADDRESS": case.address}
    file = faults.prepare_case(case.folder, case.fault, case.policy, case.address, case.target, small)
    if case.address:
        faults.start_store(case.folder, case.address)
    task_variables = {
        work.FOLDER_VARIABLE: str(case.folder),
        **store_variables,
        "ENTREPOT_POLICY": str(file),
        "ENTREPOT_EVENTS": str(case.folder / "events"),
    }
    airflow_dag.write_file(dags, case.dag_id, task_variables)


def finish_run(server: airflow_server.AirflowServer, case: Case) -> None:
    case.state = server.wait_for_end(case.dag_id, case.run)
    if case.fault == "task_killed_on_last_try":
        assert case.state == "failed"
        assert work.start_counts(case.folder)["join"] == 2  # the policy allows one retry
        faults.stop_killing(case.folder)
        server.clear_task(case.dag_id, case.run, "join")
        case.state = server.wait_for_end(case.dag_id, case.run)


def case_of(cases: Cases, fault: str, policy: str) -> Case:
    if (fault, policy) not in cases:
        pytest.skip("no full disk can be made here")
    case = cases[fault, policy]
    assert not case.problem, case.problem
    return case


@pytest.mark.parametrize(("fault", "policy"), [case for case in CASES if case in MATRIX])
def test_a_fault(airflow: airflow_server.AirflowServer, cases: Cases, fault: str, policy: str) -> None:
    case = case_of(cases, fault, policy)
    log, expected = airflow.task_log(case.dag_id, case.run, "join"), dict(case.outcome.runs)
    if fault == "task_killed_on_last_try":
        expected["join"] = 3  # killed, killed on its retry, and once more by the user
    if case.outcome.reason:
        assert case.state == "failed", log
        assert case.outcome.reason in log
        assert not (case.folder / "answer").exists()
        expected["report"] = 0
        if fault != "exception":
            expected["join"] = 0  # its inputs did not exist
    else:
        assert case.state == "success", log + airflow.log_tail()
        assert int((case.folder / "answer").read_text()) == work.ANSWER
    assert work.start_counts(case.folder) == expected, log
    assert set(case.outcome.events) <= case.kinds, log


@pytest.mark.parametrize("fault", ["object_lost", "store_killed"])
def test_a_rerun_is_no_retry(airflow: airflow_server.AirflowServer, cases: Cases, fault: str) -> None:
    case = case_of(cases, fault, "rerun")
    log = airflow.task_log(case.dag_id, case.run, "join")
    # Rescheduled: a separate attempt each time, with as many retries left as before.
    assert airflow.try_number(case.dag_id, case.run, "join") == 1 + log.count("marking task as UP_FOR_RESCHEDULE"), log
    assert airflow.retries_left(case.dag_id, case.run, "join") == 1, log
    assert airflow.try_number(case.dag_id, case.run, "left") == 2
    assert "rerunning" in log
    assert "marking task as UP_FOR_RESCHEDULE" in log
    assert "rerun_planned" in case.kinds
    events = airflow.xcom_entry(case.dag_id, case.run, "join")["failover"]
    assert any("rerunning" in line and "left" in line for line in events), events


def test_a_reload_is_logged(airflow: airflow_server.AirflowServer, cases: Cases) -> None:
    case = case_of(cases, "store_killed", "checkpoints")
    assert "Entrepot: " in airflow.task_log(case.dag_id, case.run, "join")
    entry = airflow.xcom_entry(case.dag_id, case.run, "join")
    assert any(line.startswith("reloaded") for line in entry["failover"]), entry
    assert airflow.xcom_entry(case.dag_id, case.run, "left")["checkpoint"].startswith(str(case.target)), entry


def test_the_end_of_a_run_finalizes_checkpoints(airflow: airflow_server.AirflowServer, cases: Cases) -> None:
    case = case_of(cases, *ASYNC)
    assert case.state == "success"
    expected = {"left", "right"}

    def written() -> set[str]:
        return {event.task for event in case.events if event.kind == "checkpoint_written"}

    airflow.wait_for(lambda: written() >= expected, "the checkpoints that were put off")
    assert written() == expected


def test_a_wrong_policy_fails_the_tasks_under_it_alone(airflow: airflow_server.AirflowServer, cases: Cases) -> None:
    case = case_of(cases, *INVALID)
    assert case.state == "failed"
    log = airflow.task_log(case.dag_id, case.run, "numbers")
    assert f"{case.folder}/policy.yaml:2:" in log
    assert "rulez" in log
    assert not any(work.start_counts(case.folder).values())  # the tasks fail before any of their code runs


@pytest.fixture(scope="module")
def fresh_home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of an Airflow that is not running: a directory and a database, for ``dag.test()``."""
    home = tmp_path_factory.mktemp("airflow-test")
    environment = os.environ | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__XCOM_BACKEND": "entrepot_airflow.EntrepotXComBackend",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__ENTREPOT__SCOPE": SCOPE,
    }
    migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
    process = subprocess.run(
        migrate, env=environment, cwd=home, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return environment


@pytest.mark.parametrize(
    ("fault", "policy"), [("store_killed", "rerun"), ("private_killed", "rerun"), ("private_killed", "checkpoints")]
)
def test_in_dag_test(fresh_home: dict[str, str], tmp_path: Path, socket_folder: Path, fault: str, policy: str) -> None:
    """``dag.test()``: all tasks in one process, whose store dies while it runs."""
    address = "" if fault == "private_killed" else f"unix://{socket_folder}/store.sock"
    folder = tmp_path / "work"
    case = Case(fault, policy, folder, address, tmp_path / "checkpoints")
    file = faults.prepare_case(folder, fault, policy, address, case.target)
    store_variables = {"ENTREPOT_ADDRESS": address} if address else faults.private_store_variables(socket_folder)
    if address:
        faults.start_store(folder, address)
    task_variables = {
        work.FOLDER_VARIABLE: str(folder),
        **store_variables,
        "ENTREPOT_POLICY": str(file),
        "ENTREPOT_EVENTS": str(folder / "events"),
    }
    airflow_dag.write_file(tmp_path, case.dag_id, task_variables)
    try:
        command = [sys.executable, "-c", f"import {case.dag_id} as it; print('ended:', it.dag.test().state)"]
        process = subprocess.run(
            command,
            env=fresh_home | {"AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
    finally:
        faults.stop_stores(folder)
        faults.stop_private_store(socket_folder)
    assert "ended: success" in process.stdout, process.stdout[-20_000:]
    assert int((folder / "answer").read_text()) == work.ANSWER
    assert work.start_counts(folder) == case.outcome.runs, process.stdout[-20_000:]
    assert set(case.outcome.events) <= case.kinds
    # Logged once, by the task that noticed it: not by each attempt.
    assert process.stdout.count("which this process now uses") == 1, process.stdout[-20_000:]
