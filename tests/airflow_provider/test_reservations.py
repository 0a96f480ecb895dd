"""Real DAG runs with the option ``reserve``: tasks reserve memory in the store before they run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_steps import StepResults

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(300)]

DAGS = Path(__file__).with_name("reserving_dags.py")
MIB = 1 << 20


@pytest.mark.parametrize("setting", ["32MiB", "measured", "off"])
def test_tasks_hold_what_they_reserve_while_they_run(
    run_dags: Callable[..., StepResults], tmp_path_factory: pytest.TempPathFactory, setting: str
) -> None:
    home, seen_file = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("seen") / "seen.json"
    steps = run_dags(
        DAGS, home, AIRFLOW__CORE__DAGS_FOLDER=str(DAGS), SEEN=str(seen_file), AIRFLOW__ENTREPOT__RESERVE=setting
    )
    assert [steps.value(name)["state"] for name in ("first", "second")] == ["success", "success"]
    seen = json.loads(seen_file.read_text())
    names, reserved = [name for name, _ in seen], [nbytes for _, nbytes in seen]
    assert names == ["make", "double", "last", "end"] * 2
    if setting == "measured":
        assert reserved[:4] == [0, 0, 0, 0]
        assert 8 * MIB < reserved[4] < 9 * MIB
        assert 17 * MIB < reserved[5] < 18 * MIB
        assert reserved[6:] == [0, 0]
    else:
        held = 32 * MIB if setting == "32MiB" else 0
        assert reserved == [held, held, held, 0] * 2
