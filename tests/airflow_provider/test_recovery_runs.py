"""Lost values in real DAG runs: reruns, mapped tasks, reads without a dependency, the state store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from recorded_steps import StepResults

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
    """Results of the runs; a test that asks for those of a DAG whose run raised fails with the DAG's error.

    Attributes:
        steps: outcomes of the DAG program's steps.
        folder: directory of the files written by the tasks.
    """

    steps: StepResults
    folder: Path

    @property
    def output(self) -> str:
        return self.steps.output

    def states(self, dag_id: str) -> dict[str, str]:
        """States of a DAG's task instances."""
        states: dict[str, str] = self.steps.value(dag_id)["states"]
        return states

    def run_counts(self, dag_id: str) -> Counter[str]:
        """How often each task instance of a DAG ran."""
        self.steps.value(dag_id)
        return Counter((self.folder / dag_id).read_text().split())

    def observation(self, dag_id: str, name: str) -> Any:
        self.steps.value(dag_id)
        return json.loads((self.folder / name).read_text())

    def late_end(self) -> dict[str, Any]:
        """Observations of a reader whose end was reported late."""
        observations: dict[str, Any] = self.steps.value("late end")
        return observations


@pytest.fixture(scope="module")
def runs(run_dags: Callable[..., StepResults], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All DAGs of recovery_dags.py, run once by an Airflow for this module."""
    home, folder = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("seen")
    (home / "policy.yaml").write_text(POLICY.format(target=home / "checkpoints"))
    steps = run_dags(
        DAGS,
        home,
        AIRFLOW__CORE__DAGS_FOLDER=str(DAGS),
        AIRFLOW__ENTREPOT__POLICY=str(home / "policy.yaml"),
        SEEN=str(folder),
    )
    return Runs(steps, folder)


@pytest.mark.parametrize("dag_id", ["mapped_rerun", "chain"])
def test_all_runs_end_well(runs: Runs, dag_id: str) -> None:
    assert set(runs.states(dag_id).values()) == {"success"}, runs.output[-20_000:]


def test_exactly_the_mapped_instance_runs_again(runs: Runs) -> None:
    assert runs.observation("mapped_rerun", "mapped") == [1000**2, 2000**2, 3000**2]
    counts = runs.run_counts("mapped_rerun")
    assert (counts["sizes[-1]"], counts["grow[0]"], counts["grow[1]"], counts["grow[2]"]) == (1, 1, 2, 1)
    assert counts["gather[-1]"] == 1  # its first attempt ended at the read, before it recorded itself


def test_a_reader_without_an_edge_waits_too(runs: Runs) -> None:
    assert runs.observation("mapped_rerun", "pulled") == sum(range(1000))
    counts = runs.run_counts("mapped_rerun")
    assert (counts["base[-1]"], counts["lose_base[-1]"], counts["pulls_without_an_edge[-1]"]) == (2, 1, 1)


def test_lost_upstream_values_are_recomputed_too(runs: Runs) -> None:
    counts = runs.run_counts("chain")
    assert (counts["first[-1]"], counts["second[-1]"], counts["lose_both[-1]"], counts["third[-1]"]) == (2, 2, 1, 1)


@pytest.mark.parametrize(
    ("dag_id", "reruns"), [("mapped_rerun", ["base[-1]", "grow[1]"]), ("chain", ["first[-1]", "second[-1]"])]
)
def test_reruns_are_in_the_audit_log(runs: Runs, dag_id: str, reruns: list[str]) -> None:
    assert runs.steps.value(dag_id)["audited"] == reruns


def test_callbacks_report_events(runs: Runs) -> None:
    notification = runs.observation("chain", "notified")
    assert notification.startswith("Entrepot: chain/kept of chain failed. Events in this run:\n")
    assert "checkpoint_written chain/kept chain/kept/half" in notification
    assert "Entrepot: chain/kept will be retried. Events in this run:" in runs.output


def test_a_retry_finds_the_checkpoint_of_the_attempt_before(runs: Runs) -> None:
    checkpoint = runs.observation("chain", "kept")
    assert checkpoint["key"] == "chain/kept/half"
    assert Path(checkpoint["url"].removeprefix("file://")).exists(), checkpoint


def test_the_late_end_of_a_rescheduled_attempt_is_not_the_death_of_the_next(runs: Runs) -> None:
    observations = runs.late_end()
    assert observations["while it ends"] == ["running", 1]
    assert observations["while it waits"] == ["up_for_reschedule", 1]
    assert observations["let go"] == [None, 0]
    assert observations["after its late end"] == ["running", 2]


def test_waiting_for_a_rerun_uses_no_retry(runs: Runs) -> None:
    before, after = runs.late_end()["left"]
    assert after == before
    assert runs.late_end()["history"] == ["up_for_reschedule"]  # not "failed"


@pytest.mark.parametrize("dag_id", ["mapped_rerun", "chain"])
def test_a_planned_reschedule_logs_no_error(runs: Runs, dag_id: str) -> None:
    assert runs.steps.value(dag_id)["audited"]  # there were some
    assert "AirflowRescheduleException" not in runs.output
    assert "Exception rendering" not in runs.output
