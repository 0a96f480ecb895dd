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
        audited_reruns: task instances named in Airflow's audit log.
        folder: directory of the files written by the tasks.
        output: the program's output.
        late_end: observations of a reader whose end was reported late.
    """

    states: dict[str, dict[str, str]]
    audited_reruns: list[str]
    folder: Path
    output: str
    late_end: dict[str, Any]

    def run_counts(self, dag_id: str) -> Counter[str]:
        return Counter((self.folder / dag_id).read_text().split())

    def observation(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


@pytest.fixture(scope="module")
def runs(run_dags: Callable[..., tuple[Any, str]], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All DAGs of recovery_dags.py, run once by an Airflow for this module."""
    home, folder = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("seen")
    (home / "policy.yaml").write_text(POLICY.format(target=home / "checkpoints"))
    results, output = run_dags(
        DAGS,
        home,
        AIRFLOW__CORE__DAGS_FOLDER=str(DAGS),
        AIRFLOW__ENTREPOT__POLICY=str(home / "policy.yaml"),
        SEEN=str(folder),
    )
    return Runs(results["states"], results["audited"], folder, output, results["late"])


def test_all_runs_end_well(runs: Runs) -> None:
    assert {state for dag in runs.states.values() for state in dag.values()} == {"success"}, runs.output[-20_000:]


def test_exactly_the_mapped_instance_runs_again(runs: Runs) -> None:
    assert runs.observation("mapped") == [1000**2, 2000**2, 3000**2]
    counts = runs.run_counts("mapped_rerun")
    assert (counts["sizes[-1]"], counts["grow[0]"], counts["grow[1]"], counts["grow[2]"]) == (1, 1, 2, 1)
    assert counts["gather[-1]"] == 1  # its first attempt ended at the read, before it recorded itself


def test_a_reader_without_an_edge_waits_too(runs: Runs) -> None:
    assert runs.observation("pulled") == sum(range(1000))
    counts = runs.run_counts("mapped_rerun")
    assert (counts["base[-1]"], counts["lose_base[-1]"], counts["pulls_without_an_edge[-1]"]) == (2, 1, 1)


def test_lost_upstream_values_are_recomputed_too(runs: Runs) -> None:
    counts = runs.run_counts("chain")
    assert (counts["first[-1]"], counts["second[-1]"], counts["lose_both[-1]"], counts["third[-1]"]) == (2, 2, 1, 1)


def test_reruns_are_in_the_audit_log(runs: Runs) -> None:
    assert runs.audited_reruns == ["base[-1]", "first[-1]", "grow[1]", "second[-1]"]


def test_callbacks_report_events(runs: Runs) -> None:
    notification = runs.observation("notified")
    assert notification.startswith("Entrepot: chain/kept of chain failed. Events in this run:\n")
    assert "checkpoint_written chain/kept chain/kept/half" in notification
    assert "Entrepot: chain/kept will be retried. Events in this run:" in runs.output


def test_a_retry_finds_the_checkpoint_of_the_attempt_before(runs: Runs) -> None:
    checkpoint = runs.observation("kept")
    assert checkpoint["key"] == "chain/kept/half"
    assert Path(checkpoint["url"].removeprefix("file://")).exists(), checkpoint


def test_the_late_end_of_a_rescheduled_attempt_is_not_the_death_of_the_next(runs: Runs) -> None:
    assert runs.late_end["while it ends"] == ["running", 1]
    assert runs.late_end["while it waits"] == ["up_for_reschedule", 1]
    assert runs.late_end["let go"] == [None, 0]
    assert runs.late_end["after its late end"] == ["running", 2]


def test_waiting_for_a_rerun_uses_no_retry(runs: Runs) -> None:
    before, after = runs.late_end["left"]
    assert after == before
    assert runs.late_end["history"] == ["up_for_reschedule"]  # not "failed"


def test_a_planned_reschedule_logs_no_error(runs: Runs) -> None:
    assert "AirflowRescheduleException" not in runs.output
    assert "Exception rendering" not in runs.output
