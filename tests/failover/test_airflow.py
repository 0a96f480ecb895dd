"""The matrix of faults on Airflow: all cases at once in one ``airflow standalone``, each with a store of its own."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import airflow_dag
import airflow_home
import faults
import pipeline as work
from entrepot_io.policy.events import Event, log_file, read_events
from faults import MATRIX, SHORT, Outcome

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]
FULL = os.environ.get("ENTREPOT_FAULT_MATRIX") == "full"
SCOPE = "failover"
ASYNC = ("none", "async")
WRONG = ("none", "wrong")
# Beside the matrix: checkpoints that only the end of the run writes, and a policy that is wrong.
OWN_POLICIES = {
    "async": """
version: 1
checkpoint: {{target: "{target}/{{run}}", mode: async, rules: [{{match: {{task: [left, right]}}}}]}}
""",
    "wrong": 'version: 1\ncheckpoint: {{target: "{target}", rulez: []}}\n',
}
CASES = (*(MATRIX if FULL else SHORT), ASYNC, WRONG)


@dataclass
class Case:
    """One run.

    Attributes:
        dag_id: of it.
        folder: of its faults, journal and events.
        address: of its store.
        target: of its checkpoints.
        run: its ID.
        state: in which it ended.
    """

    fault: str
    policy: str
    folder: Path
    address: str
    target: Path
    run: str = ""
    state: str = ""

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
    """For sockets, whose names the kernel limits."""
    folder = Path(tempfile.mkdtemp(prefix="ea-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def small(
    tmp_path_factory: pytest.TempPathFactory, small_disk: Callable[[Path, int], AbstractContextManager[str]]
) -> Iterator[Path | None]:
    """A folder on a disk that is full after 64 KiB; None: none can be made here."""
    folder = tmp_path_factory.mktemp("small")
    with small_disk(folder, 64 << 10) as refused:
        yield None if refused else folder


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, short_folder: Path, small: Path | None) -> Iterator[Cases]:
    """All cases, with their stores, policies and DAG files."""
    faults.POLICIES.update(OWN_POLICIES)
    root = tmp_path_factory.mktemp("cases")
    (root / "dags").mkdir()
    found: Cases = {}
    try:
        for number, (fault, policy) in enumerate(CASES):
            if policy == "disk_full" and small is None:
                continue
            folder = root / f"{fault}-{policy}"
            case = Case(fault, policy, folder, f"unix://{short_folder}/{number}", folder / "checkpoints")
            file = faults.prepare(folder, fault, policy, case.address, case.target, small)
            found[fault, policy] = case
            faults.start_store(folder, case.address)
            said = {
                work.FOLDER: str(folder),
                "ENTREPOT_ADDRESS": case.address,
                "ENTREPOT_POLICY": str(file),
                "ENTREPOT_EVENTS": str(folder / "events"),
            }
            airflow_dag.write_file(root / "dags", case.dag_id, said)
        yield found
    finally:
        for case in found.values():
            faults.end_stores(case.folder)


@pytest.fixture(scope="module")
def airflow(cases: Cases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[airflow_home.Home]:
    """Airflow, when all runs have ended."""
    own = cases[ASYNC]  # whose end only the scheduler's process sees to: it has the same policy and store
    more = {
        "AIRFLOW__ENTREPOT__SCOPE": SCOPE,
        "AIRFLOW__ENTREPOT__POLICY": str(own.folder / "policy.yaml"),
        "AIRFLOW__ENTREPOT__ADDRESS": own.address,
        "ENTREPOT_EVENTS": str(own.folder / "events"),
    }
    dags = own.folder.parent / "dags"
    going = [case for key, case in cases.items() if key != WRONG]
    good = {case.dag_id for case in going}
    with airflow_home.running(tmp_path_factory.mktemp("airflow"), dags, more, good, len(cases) - len(good)) as home:
        for case in going:
            case.run = home.start(case.dag_id)
        for case in going:
            case.state = home.wait_for_end(case.dag_id, case.run)
            if case.fault == "task_killed_on_last_try":
                assert case.state == "failed"
                assert work.runs(case.folder)["join"] == 2  # the policy says: one retry
                faults.heal(case.folder)
                home.clear(case.dag_id, case.run, "join")
                case.state = home.wait_for_end(case.dag_id, case.run)
        yield home


def case_of(cases: Cases, fault: str, policy: str) -> Case:
    if (fault, policy) not in cases:
        pytest.skip("no full disk can be made here")
    return cases[fault, policy]


@pytest.mark.parametrize(("fault", "policy"), [one for one in CASES if one in MATRIX])
def test_a_fault(airflow: airflow_home.Home, cases: Cases, fault: str, policy: str) -> None:
    case = case_of(cases, fault, policy)
    log, expected = airflow.log(case.dag_id, case.run, "join"), dict(case.outcome.runs)
    if fault == "task_killed_on_last_try":
        expected["join"] = 3  # killed, killed on its retry, and once more by the user
    if case.outcome.reason:
        assert case.state == "failed", log
        assert case.outcome.reason in log
        assert not (case.folder / "answer").exists()
        expected["report"] = 0
        if fault != "exception":
            expected["join"] = 0  # its inputs were not there
    else:
        assert case.state == "success", log + airflow.told()
        assert int((case.folder / "answer").read_text()) == work.ANSWER
    assert work.runs(case.folder) == expected, log
    assert set(case.outcome.events) <= case.kinds, log


@pytest.mark.parametrize("fault", ["object_lost", "store_killed"])
def test_a_rerun_is_no_retry(airflow: airflow_home.Home, cases: Cases, fault: str) -> None:
    case = case_of(cases, fault, "rerun")
    log = airflow.log(case.dag_id, case.run, "join")
    assert airflow.tries(case.dag_id, case.run, "join") == 1, log  # rescheduled, with no try used up
    assert airflow.tries(case.dag_id, case.run, "left") == 2
    assert "run again" in log
    assert "marking task as UP_FOR_RESCHEDULE" in log
    assert "rerun_planned" in case.kinds
    told = airflow.entry(case.dag_id, case.run, "join")["failover"]
    assert any("run again" in line and "left" in line for line in told), told


def test_a_reload_is_told(airflow: airflow_home.Home, cases: Cases) -> None:
    case = case_of(cases, "store_killed", "checkpoints")
    assert "Entrepot: " in airflow.log(case.dag_id, case.run, "join")
    entry = airflow.entry(case.dag_id, case.run, "join")
    assert any(line.startswith("reloaded") for line in entry["failover"]), entry
    assert airflow.entry(case.dag_id, case.run, "left")["checkpoint"].startswith(str(case.target)), entry


def test_the_end_of_a_run_settles_checkpoints(airflow: airflow_home.Home, cases: Cases) -> None:
    case = case_of(cases, *ASYNC)
    assert case.state == "success"
    wanted = {"left", "right"}

    def written() -> set[str]:
        return {event.task for event in case.events if event.kind == "checkpoint_written"}

    airflow.wait_for(lambda: written() >= wanted, "the checkpoints that were put off")
    assert written() == wanted


def test_a_wrong_policy_is_an_import_error(airflow: airflow_home.Home, cases: Cases) -> None:
    errors = "\n".join(airflow.import_errors())
    assert f"{cases[WRONG].folder}/policy.yaml:2:" in errors
    assert "rulez" in errors
