"""Lost values in real DAG runs: reruns, mapped tasks, reads without a dependency, the state store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

DAGS = Path(__file__).with_name("recovery_dags.py")
POLICY = """
version: 1
checkpoint:
  target: {target}
  rules: [{{match: kept}}]
failover:
  - {{on: object_lost, do: [rerun_upstream]}}
"""


@dataclass
class Runs:
    """Results of the runs.

    Attributes:
        states: states of the task instances, by DAG.
        audited: task instances named in Airflow's audit log.
        folder: directory of the files written by the tasks.
        said: the program's output.
        late: observations of a reader whose end was reported late.
    """

    states: dict[str, dict[str, str]]
    audited: list[str]
    folder: Path
    said: str
    late: dict[str, Any]

    def ran(self, dag_id: str) -> Counter[str]:
        return Counter((self.folder / dag_id).read_text().split())

    def seen(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


@pytest.fixture(scope="module")
def runs(run_dags: Callable[..., tuple[Any, str]], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All DAGs of recovery_dags.py, run once by an Airflow for this module."""
    home, folder = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("seen")
    (home / "policy.yaml").write_text(POLICY.format(target=home / "checkpoints"))
    found, said = run_dags(
        DAGS,
        home,
        AIRFLOW__CORE__DAGS_FOLDER=str(DAGS),
        AIRFLOW__ENTREPOT__POLICY=str(home / "policy.yaml"),
        SEEN=str(folder),
    )
    return Runs(found["states"], found["audited"], folder, said, found["late"])


def test_all_runs_end_well(runs: Runs) -> None:
    assert {state for dag in runs.states.values() for state in dag.values()} == {"success"}, runs.said[-20_000:]


def test_exactly_the_mapped_instance_runs_again(runs: Runs) -> None:
    assert runs.seen("mapped") == [1000**2, 2000**2, 3000**2]
    ran = runs.ran("mapped_rerun")
    assert (ran["sizes[-1]"], ran["grow[0]"], ran["grow[1]"], ran["grow[2]"]) == (1, 1, 2, 1)
    assert ran["gather[-1]"] == 1  # its first attempt ended at the read, before it recorded itself


def test_a_reader_without_an_edge_waits_too(runs: Runs) -> None:
    assert runs.seen("pulled") == sum(range(1000))
    ran = runs.ran("mapped_rerun")
    assert (ran["base[-1]"], ran["lose_base[-1]"], ran["pulls_without_an_edge[-1]"]) == (2, 1, 1)


def test_what_is_lost_above_runs_again_too(runs: Runs) -> None:
    ran = runs.ran("chain")
    assert (ran["first[-1]"], ran["second[-1]"], ran["lose_both[-1]"], ran["third[-1]"]) == (2, 2, 1, 1)


def test_reruns_are_in_the_audit_log(runs: Runs) -> None:
    assert runs.audited == ["base[-1]", "first[-1]", "grow[1]", "second[-1]"]


def test_callbacks_tell_what_happened(runs: Runs) -> None:
    told = runs.seen("notified")
    assert told.startswith("Entrepot: chain/kept of chain failed. In this run:\n")
    assert "checkpoint_written chain/kept chain/kept/half" in told
    assert "Entrepot: chain/kept is tried again. In this run:" in runs.said


def test_a_retry_finds_the_checkpoint_of_the_attempt_before(runs: Runs) -> None:
    found = runs.seen("kept")
    assert found["key"] == "chain/kept/half"
    assert Path(found["url"].removeprefix("file://")).exists(), found


def test_the_late_end_of_a_rescheduled_attempt_is_not_the_death_of_the_next(runs: Runs) -> None:
    assert runs.late["while it ends"] == ["running", 1]
    assert runs.late["while it waits"] == ["up_for_reschedule", 1]
    assert runs.late["let go"] == [None, 0]
    assert runs.late["after its late end"] == ["running", 2]


def test_coming_after_others_uses_up_no_retry(runs: Runs) -> None:
    before, after = runs.late["left"]
    assert after == before
    assert runs.late["history"] == ["up_for_reschedule"]  # not "failed"


def test_a_planned_reschedule_logs_no_error(runs: Runs) -> None:
    assert "AirflowRescheduleException" not in runs.said
    assert "Exception rendering" not in runs.said
