"""Runs under the CeleryExecutor, with Redis and workers, and under the LocalExecutor; each case has its own store.

All cases run at once in one Airflow for each executor.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import entrepot
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import airflow_celery
import airflow_dag
import airflow_server
import faults
import pipeline as work
from airflow_server import AirflowServer
from entrepot_io.sessions import run_session
from faults import ONCE, with_reruns

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="Redis is not installed"),
]

SCOPE = "executors"
# What is expected of each case: how often each task begins.
FULL_MATRIX = {
    "none": ONCE,
    "exception": with_reruns(join=1),
    "task_killed": with_reruns(join=1),
    "daemon_killed": ONCE,
    "task_and_daemon_killed": with_reruns(join=1),
    "store_killed": with_reruns(numbers=1, left=1, right=1),
    "exception_without_policy": with_reruns(join=1),  # the second time because a user cleared it
}
# The most telling: test_airflow.py has each of these faults by itself. ENTREPOT_FAULT_MATRIX=full: all.
SHORT_MATRIX = ("none", "task_and_daemon_killed", "store_killed")
CASES = (
    FULL_MATRIX
    if os.environ.get("ENTREPOT_FAULT_MATRIX") == "full"
    else {name: FULL_MATRIX[name] for name in SHORT_MATRIX}
)
# What the logs of `join` and of the store say of the fault itself: an error of another kind would cost as much.
KILLED_TASK = '"signal_name":"SIGKILL"'
KILLED_DAEMON = "was killed by signal 9"
TRACES = {
    "exception": ("join fails as it was told to", ""),
    "task_killed": (KILLED_TASK, ""),
    "daemon_killed": ("", KILLED_DAEMON),
    "task_and_daemon_killed": (KILLED_TASK, KILLED_DAEMON),
    "exception_without_policy": ("join fails as it was told to", ""),
}
FAN_OUTS = {"fan_out_a": 0, "fan_out_b": 1000}  # DAGs with tasks of the same names, which run at once: first value
COUNT = 8
OTHER_HOST = "other_host"
DAILY = "daily"  # a DAG that only a backfill runs
RUNNERS: dict[str, Any] = {"celery": airflow_celery.running, "local": airflow_server.running}


@dataclass
class Airflow:
    """An Airflow after the runs of all cases.

    Attributes:
        executor: a key of RUNNERS.
        server: the server.
        address: the scheduler's store, which the fan-outs use.
        folder: has a folder for each case.
        states: of the runs, by DAG.
    """

    executor: str
    server: AirflowServer
    address: str
    folder: Path
    states: dict[str, str]

    def log(self, dag_id: str, task_id: str) -> str:
        return self.server.task_log(dag_id, f"case-{dag_id}", task_id) + self.server.log_tail()

    def sessions(self) -> set[str]:
        """The sessions of runs in the scheduler's store."""
        with entrepot.connect(self.address, scope=SCOPE) as store:
            return {record.session for record in store.sessions() if record.session}


@pytest.fixture(scope="module", params=["celery", pytest.param("local", marks=pytest.mark.exhaustive)])
def airflow(request: pytest.FixtureRequest, airflow_database: Callable[[], dict[str, str]]) -> Iterator[Airflow]:
    """Airflow with this executor, after one run of each DAG."""
    folder = Path(tempfile.mkdtemp(prefix="ex-"))  # a short path: a socket's is limited to 107 bytes
    address = f"unix://{folder}/shared.sock"
    dags = folder / "dags"
    dags.mkdir()
    try:
        (folder / "shared").mkdir()
        faults.start_store(folder / "shared", address)
        for number, name in enumerate(CASES):
            _prepare(folder / name, dags, name, f"unix://{folder}/{number}.sock")
        for name in FAN_OUTS:
            airflow_dag.write_file(dags, name, {}, builder="build_fan_out")
        airflow_dag.write_file(dags, OTHER_HOST, {}, builder="build_other_host")
        airflow_dag.write_file(dags, DAILY, {}, builder="build_daily")
        variables = airflow_database() | {
            "AIRFLOW__ENTREPOT__SCOPE": SCOPE,
            "AIRFLOW__ENTREPOT__ADDRESS": address,
            # The scheduler reruns what tasks ask it to only if it has a policy itself.
            "AIRFLOW__ENTREPOT__POLICY": str(folder / "none" / "policy.yaml"),
        }
        dag_ids = {*CASES, *FAN_OUTS, OTHER_HOST}
        with RUNNERS[request.param](folder / "home", dags, variables, {*dag_ids, DAILY}) as server:
            confs: dict[str, Any] = {name: {"first": first, "count": COUNT} for name, first in FAN_OUTS.items()}
            runs = {name: server.start_run(name, conf=confs.get(name)) for name in sorted(dag_ids)}
            states = {name: server.wait_for_end(name, run) for name, run in runs.items()}
            yield Airflow(request.param, server, address, folder, states)
    finally:
        for case in folder.iterdir():
            faults.stop_stores(case)
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(folder: Path, dags: Path, name: str, address: str) -> None:
    """Start the store of a case, and write its DAG file."""
    fault, _, without_policy = name.partition("_without_")
    policy = faults.prepare_case(folder, fault, "rerun", address, folder / "checkpoints")
    faults.start_store(folder, address)
    variables = {work.FOLDER_VARIABLE: str(folder), "ENTREPOT_ADDRESS": address}
    variables |= {
        name: "" if without_policy else str(policy) for name in ("ENTREPOT_POLICY", "AIRFLOW__ENTREPOT__POLICY")
    }
    variables["ENTREPOT_EVENTS"] = str(folder / "events")
    airflow_dag.write_file(dags, name, variables)


@pytest.mark.parametrize("case", CASES)
def test_a_fault_costs_what_it_destroyed(airflow: Airflow, case: str) -> None:
    log = airflow.log(case, "join")
    if case == "exception_without_policy":
        assert airflow.states[case] == "failed", log
        airflow.server.clear_task(case, f"case-{case}", "join")
        assert airflow.server.wait_for_end(case, f"case-{case}") == "success", airflow.log(case, "join")
    else:
        assert airflow.states[case] == "success", log
    assert int((airflow.folder / case / "answer").read_text()) == work.ANSWER
    assert work.start_counts(airflow.folder / case) == CASES[case], log
    of_task, of_store = TRACES.get(case, ("", ""))
    assert of_task in log
    assert of_store in (airflow.folder / case / "entrepotd.log").read_text()


def test_a_cleared_task_and_those_after_it_run_again(airflow: Airflow) -> None:
    run = "cleared"
    airflow.server.start_run("none", run)
    assert airflow.server.wait_for_end("none", run) == "success"
    before = work.start_counts(airflow.folder / "none")
    first = airflow.server.xcom_entry("none", run, "left")
    airflow.server.clear_task("none", run, "left")
    assert airflow.server.wait_for_end("none", run) == "success", airflow.server.task_log("none", run, "join")
    again = {task for task, count in work.start_counts(airflow.folder / "none").items() if count > before[task]}
    assert again == {"left", "strike", "join", "report"}
    second = airflow.server.xcom_entry("none", run, "left")
    assert second["id"] == first["id"]
    assert second["generation"] != first["generation"]
    assert int((airflow.folder / "none" / "answer").read_text()) == work.ANSWER


def _assert_gathered(airflow: Airflow, dag_id: str, run: str, count: int) -> None:
    gathered = airflow.server.xcom_entry(dag_id, run, "gather")
    assert gathered == list(range(FAN_OUTS[dag_id], FAN_OUTS[dag_id] + count))


def test_two_dags_at_once_get_their_own_values(airflow: Airflow) -> None:
    times = [airflow.server.begin_and_end(dag_id, f"case-{dag_id}") for dag_id in FAN_OUTS]
    assert max(begin for begin, _ in times) < min(end for _, end in times)
    for dag_id in FAN_OUTS:
        assert airflow.states[dag_id] == "success", airflow.log(dag_id, "gather")
        _assert_gathered(airflow, dag_id, f"case-{dag_id}", COUNT)


@pytest.mark.exhaustive  # two minutes: a process for each instance
def test_a_fan_out_of_a_hundred(airflow: Airflow) -> None:
    run = "hundred"
    airflow.server.start_run("fan_out_a", run, {"first": 0, "count": 100})
    assert airflow.server.wait_for_end("fan_out_a", run) == "success", airflow.server.log_tail()
    _assert_gathered(airflow, "fan_out_a", run, 100)


def test_values_of_a_run_deleted_over_rest_are_removed(airflow: Airflow) -> None:
    deleted, kept = (run_session("airflow", "fan_out_b", run) for run in ("deleted", "case-fan_out_b"))
    run = airflow.server.start_run("fan_out_b", "deleted", {"first": FAN_OUTS["fan_out_b"], "count": 1})
    assert airflow.server.wait_for_end("fan_out_b", run) == "success", airflow.server.log_tail()
    assert {deleted, kept} <= airflow.sessions()
    airflow.server.delete_run("fan_out_b", run)
    airflow.server.wait_for(lambda: deleted not in airflow.sessions(), "the scheduler to remove the run's values")
    assert kept in airflow.sessions()


def test_a_backfill_passes_values_on_within_each_run(airflow: Airflow) -> None:
    server, days = airflow.server, {f"backfill__2026-01-0{day}T00:00:00+00:00": day for day in (1, 2, 3)}
    dates = ("--from-date", "2026-01-01", "--to-date", "2026-01-03")
    server.run_command("backfill", "create", "--dag-id", DAILY, *dates, "--max-active-runs", "2")
    server.wait_for(lambda: len(server.runs(DAILY)) == len(days), "the runs of the backfill")
    assert server.runs(DAILY) == dict.fromkeys(days, "backfill")
    for run, day in days.items():
        assert server.wait_for_end(DAILY, run) == "success", server.task_log(DAILY, run, "total")
        assert server.xcom_entry(DAILY, run, "total") == 5000 * day
        assert server.xcom_entry(DAILY, run, "day")["session"] == run_session("airflow", DAILY, run)


def test_a_worker_on_another_host_gets_an_error_that_names_the_host(airflow: Airflow) -> None:
    if airflow.executor == "local":
        assert airflow.states[OTHER_HOST] == "success"  # queues mean nothing to it: all of it ran here
        return
    if not airflow_celery.can_name_hosts():
        pytest.skip("no process can have a host name of its own here")
    states = airflow.server.task_states(OTHER_HOST, f"case-{OTHER_HOST}")
    assert states == {"make": "success", "read": "failed", "make_there": "success", "read_there": "success"}
    log = airflow.log(OTHER_HOST, "read")
    here = airflow.server.xcom_entry(OTHER_HOST, f"case-{OTHER_HOST}", "make")["host"]
    assert f"lives on host '{here}'" in log, json.dumps(states)
    other_host = airflow.server.xcom_entry(OTHER_HOST, f"case-{OTHER_HOST}", "make_there")["host"]
    assert other_host == airflow_celery.OTHER_HOST != here
