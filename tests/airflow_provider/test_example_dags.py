"""The DAGs that the documentation shows run, with the results that they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_steps import StepResults

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.exhaustive, pytest.mark.timeout(700)]

PROGRAM = Path(__file__).with_name("example_runs.py")
EXAMPLES = Path(__file__).parents[2] / "examples" / "airflow"
# What tasks return in the end, by example; and what Airflow's database has references to.
RESULTS: dict[str, dict[str, Any]] = {
    "assets": {"total": 30},
    "failures": {"total": 999 * 500},
    "files": {"total": 30},
    "operators": {"total": 100},
    "sensors": {"use": 7.5},
    "state": {"work": 10_000},
    "values": {"count": 4, "total": 100},
}
BY_REFERENCE = {"values": {"load.return_value", "in_parts.return_value", "summarize.table"}}


@pytest.fixture(scope="module")
def runs(
    start_daemon: Callable[..., Any], run_dags: Callable[..., StepResults], tmp_path_factory: pytest.TempPathFactory
) -> StepResults:
    """All examples, in a store with a disk, which evicting needs."""
    spilling = start_daemon("256MiB", "--spill-path", str(tmp_path_factory.mktemp("spill")))
    return run_dags(
        PROGRAM,
        tmp_path_factory.mktemp("airflow"),
        AIRFLOW__CORE__DAGS_FOLDER=str(EXAMPLES),
        AIRFLOW__ENTREPOT__SCOPE="example",
        AIRFLOW__WORKERS__STATE_STORE_BACKEND="entrepot_airflow.state_store.EntrepotStateStoreBackend",
        ENTREPOT_ADDRESS=spilling.address,
        TMPDIR=str(tmp_path_factory.mktemp("files")),
    )


def test_each_example_is_known() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == RESULTS.keys()


@pytest.mark.parametrize("example", RESULTS)
def test_an_example_runs(runs: StepResults, example: str) -> None:
    run = runs.value(example)
    assert set(run["states"].values()) == {"success"}, runs.output[-8000:]
    for task_id, value in RESULTS[example].items():
        assert run["values"][f"{task_id}.return_value"] == value
    for name in BY_REFERENCE.get(example, set()):
        assert run["values"][name]["entrepot"] == 1
