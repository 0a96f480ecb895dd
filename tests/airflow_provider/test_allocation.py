"""A real DAG run with the option ``allocate``: tasks make large values in the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_steps import StepResults

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(300)]

DAGS = Path(__file__).with_name("allocating_dags.py")


@pytest.mark.parametrize(("setting", "sealed"), [("True", 2), ("False", 0)])
def test_tasks_make_values_in_the_store_if_asked_for(
    run_dags: Callable[..., StepResults], tmp_path_factory: pytest.TempPathFactory, setting: str, sealed: int
) -> None:
    home, folder = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("seen")
    steps = run_dags(
        DAGS, home, AIRFLOW__CORE__DAGS_FOLDER=str(DAGS), SEEN=str(folder), AIRFLOW__ENTREPOT__ALLOCATE=setting
    )
    assert steps.value("allocating")["state"] == "success"
    seen = json.loads((folder / "allocating").read_text())
    assert seen["sum"] == 2 * sum(range(500_000))
    assert seen["sealed"] == sealed, seen
