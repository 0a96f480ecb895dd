"""Real DAG runs: tasks, mapped tasks, retries, lost and replaced values."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from entrepot_io.reference import Reference
from recorded_steps import StepResults

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

DAGS = Path(__file__).with_name("dags.py")


@dataclass
class Runs:
    """Results of the runs; a test that asks for those of a DAG whose run raised fails with the DAG's error.

    Attributes:
        steps: outcomes of the DAG program's steps.
        folder: directory of the files written by the tasks.
    """

    steps: StepResults
    folder: Path

    def observation(self, dag_id: str, name: str = "") -> Any:
        """What a task of a DAG observed; by default under the name of the DAG."""
        self.steps.value(dag_id)
        lines = (self.folder / (name or dag_id)).read_text().splitlines()
        assert len(lines) == 1, lines
        return json.loads(lines[0])

    def states(self, dag_id: str) -> dict[str, str]:
        """States of a DAG's task instances."""
        states: dict[str, str] = self.steps.value(dag_id)["states"]
        return states

    def entry(self, dag_id: str, name: str) -> Any:
        return self.steps.value(dag_id)["entries"][name]


@pytest.fixture(scope="module")
def runs(run_dags: Callable[..., StepResults], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All DAGs of dags.py, run once by an Airflow for this module."""
    home, folder = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("seen")
    steps = run_dags(DAGS, home, AIRFLOW__CORE__DAGS_FOLDER=str(DAGS.parent), SEEN=str(folder))
    return Runs(steps, folder)


def test_values_keep_their_types(runs: Runs) -> None:
    assert set(runs.states("handoff").values()) == {"success"}
    observation = runs.observation("handoff")
    assert observation["frame"] == ["pandas", 100_000, 100_000 * 99_999 // 2]
    assert observation["dtypes"][0] == "int64"
    assert observation["values"] == ["int64", False]
    assert observation["model"] == ["Model", 1000 * 999 // 2]
    assert observation["several"] == [5000 * 4999 // 2, 7]
    assert observation["small"] == {"rows": 3, "names": ["a", "b"], "nothing": None}


def test_the_database_has_readable_references(runs: Runs) -> None:
    entry = runs.entry("handoff", "make[-1].return_value")
    reference = Reference.parse(entry)
    assert reference.type == "pandas.DataFrame"
    assert reference.shape == (100_000, 2)
    assert reference.key == "handoff/make/return_value"
    assert reference.session.startswith("airflow/handoff/manual__")
    assert reference.scope == "tests"  # from section [entrepot] of Airflow's configuration
    assert reference.nbytes > 800_000
    assert len(json.dumps(entry)) < 600


def test_small_plain_values_stay_in_the_database(runs: Runs) -> None:
    assert runs.entry("handoff", "plain[-1].return_value") == {"rows": 3, "names": ["a", "b"], "nothing": None}
    assert runs.entry("handoff", "several[-1].number") == 7
    assert runs.entry("mapped", "sizes[-1].return_value") == [1000, 2000, 3000]


def test_mapped_tasks(runs: Runs) -> None:
    assert runs.observation("mapped") == [1000, 2000, 3000]
    ids = {str(Reference.parse(runs.entry("mapped", f"grow[{index}].return_value")).id) for index in range(3)}
    assert len(ids) == 3


def test_a_retried_task_hands_over_its_last_attempt(runs: Runs) -> None:
    assert set(runs.states("retried").values()) == {"success"}
    assert runs.observation("retried") == [2, 2]
    assert (
        runs.observation("retried", "purged") is True
    )  # Airflow deletes what the first attempt pushed, including the object


def test_a_lost_value_is_an_error(runs: Runs) -> None:
    observation = runs.observation("lost")
    assert observation["error"] == "ObjectLost"
    assert observation["codes"] == ["object_lost"]
    assert "'lost/produce/return_value'" in observation["message"]
    assert "is no longer in the store" in observation["message"]
    assert runs.states("lost")["use[-1]"] == "failed"
    assert not (runs.folder / "lost_used").exists()


def test_a_replaced_value_is_never_read_by_the_old_reference(runs: Runs) -> None:
    observation = runs.observation("replaced")
    assert observation["error"] == "ObjectLost"
    assert "was replaced by a later attempt" in observation["message"]


# The first row of the frame that tasks write into, by column, and what they write.
FIRST_ROW = {"number": "0", "share": "0.0", "day": "2026-01-01 00:00:00", "text": "a"}
WRITTEN = {"number": "7", "share": "0.5", "day": "2030-01-01 00:00:00", "text": "z"}


def test_writing_into_an_input_fails_and_names_the_setting(runs: Runs) -> None:
    states = runs.states("writing")
    # pandas does not write into a column of strings, but replaces it, so nothing fails.
    expected = {"number": "failed", "share": "failed", "day": "failed", "text": "success"}
    assert {column: states[f"write_{column}[-1]"] for column in WRITTEN} == expected
    advice = [line for line in runs.steps.output.splitlines() if "Entrepot: inputs are read-only views" in line]
    assert len(advice) == 3, runs.steps.output[-20_000:]
    for line in advice:
        assert 'copy="on_write"' in line
        assert "[entrepot] copy = on_write in Airflow's configuration, or as ENTREPOT_COPY" in line
    assert runs.observation("writing", "writing_text") == list((FIRST_ROW | {"text": "z"}).values())
    assert runs.observation("writing", "writing_after") == list(FIRST_ROW.values())


def test_with_the_setting_writing_changes_only_the_writers_copy(runs: Runs) -> None:
    assert set(runs.states("writing_on_write").values()) == {"success"}
    for column, value in WRITTEN.items():
        expected = list((FIRST_ROW | {column: value}).values())
        assert runs.observation("writing_on_write", f"writing_on_write_{column}") == expected
    assert runs.observation("writing_on_write", "writing_on_write_after") == list(FIRST_ROW.values())
