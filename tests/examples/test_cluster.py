"""End-to-end test of the cluster example: the host that trains the model is killed, and the answer is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.cluster import demo, present
from examples.cluster.present import Row
from examples.flights.measure.meter import Call, CallTotals

ROOT = Path(__file__).resolve().parents[2]
ROWS = 4000


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1500)
def test_the_host_that_trains_is_killed(airflow_database: Callable[[], dict[str, str]], tmp_path: Path) -> None:
    out = tmp_path / "out"
    database = airflow_database()["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    command = [sys.executable, "-m", "examples.cluster", "--runs", "killed", "--rows", str(ROWS), "--out", str(out)]
    process = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"DEMO_AIRFLOW_DATABASE": database},
        capture_output=True,
        text=True,
        timeout=1400,
    )
    # The demo itself fails if the answer is not that of the job in one process.
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-20_000:]
    results: dict[str, Any] = json.loads((out / "results.json").read_text())
    assert results["same_answers"]
    (run,) = results["runs"]
    assert run["report"]["flights"] == ROWS
    assert run["killed"] in ("host-a", "host-b")
    # Which values are lost depends on the worker that made them. The features have a checkpoint, and the joined flights
    # are made again; training was interrupted in any case.
    assert "train" in run["rerun"]
    assert set(run["rerun"]) <= {"load", "join", "train"}
    assert set(run["reloaded"]) <= {"features"}


def _row(transport: str, killed: str, seconds: float) -> Row:
    calls = [
        Call("write", "join", seconds, 2_000_000, 0, 0.0, 1),
        Call("read", "features", 2 * seconds, 0, 1_000_000, 0.0, 1),
    ]
    return Row(transport, killed, 10.0, CallTotals.of(calls), ("host-a", "host-b"), ("features",), ("train",), {})


def test_the_table_and_the_medians() -> None:
    rows = [_row("entrepot", "", 1.0), _row("files", "", 4.0), _row("entrepot", "", 3.0), _row("entrepot", "host-a", 9)]
    table = present.text_table(rows)
    assert "3.00" in table
    assert "host-a killed" in table
    assert "features" in table
    assert "6.00 s with Entrepot, 12.00 s with files" in present.comparison(rows)
    assert present.comparison(rows[:1]) == ""


@pytest.mark.parametrize("options", [["--runs", "unplugged"], ["--rounds", "0"], ["--rows", "0"]])
def test_wrong_options_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.parse(options)
    assert options[1] in capsys.readouterr().err
