"""End-to-end test of the failover example on a few thousand flights: each orchestrator, and each fault on Kedro.

ENTREPOT_FAULT_MATRIX=full: each fault on each orchestrator.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.failover import demo
from examples.failover.runs import rerun_tasks
from examples.failover.tasks import JournalLine

ROOT = Path(__file__).resolve().parents[2]
ROWS = 4000
# Kedro's runs take seconds, those of the others half a minute each, and tests/failover has these faults under them too:
# `make test` runs the example on Kedro. The others keep the fault that needs most of an orchestrator: values reloaded,
# and tasks rerun.
FAULTS = {"airflow": ["store"], "dagster": ["store"], "kedro": ["task", "daemon", "store"]}
if os.environ.get("ENTREPOT_FAULT_MATRIX") == "full":
    FAULTS = dict.fromkeys(FAULTS, FAULTS["kedro"])
# Expected reruns (RERUN_TASKS) and reloads (RELOADED_TASKS) by fault.
RERUN_TASKS = {"none": [], "task": ["train"], "daemon": [], "store": ["load", "join"]}
LOG_PATTERN = re.compile("error|warning|mismatch|Trying to enqueue|executor event|Entrepot", re.IGNORECASE)
RELOADED_TASKS = {"none": [], "task": [], "daemon": [], "store": ["features"]}


def _log_excerpts(work: Path, run: dict[str, Any]) -> str:
    """Log excerpts for a run with an unexpected result: its own logs, and matching lines of others that name it."""
    lines = [f"{run['orchestrator']}, {run['fault']}: rerun {run['rerun']}, reloaded {run['reloaded']}"]
    name = f"{run['orchestrator']}-{run['fault']}"
    for log in sorted(work.rglob("*.log")):
        is_own_log = name in str(log)
        text = log.read_text(errors="replace").splitlines()
        excerpt = [line[:600] for line in text if is_own_log or (name in line and LOG_PATTERN.search(line))]
        lines += [f"--- {log.relative_to(work)}", *excerpt[-60:]] if excerpt else []
    return "\n".join(lines)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "orchestrator", [name if name == "kedro" else pytest.param(name, marks=pytest.mark.exhaustive) for name in FAULTS]
)
def test_every_fault_ends_with_the_right_answer(
    orchestrator: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    out, environment = tmp_path / "out", dict(os.environ)
    if orchestrator == "airflow":
        database = request.getfixturevalue("airflow_database")()
        environment["DEMO_AIRFLOW_DATABASE"] = database["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    command = [
        sys.executable,
        "-m",
        "examples.failover",
        "--rows",
        str(ROWS),
        "--orchestrators",
        orchestrator,
        "--faults",
        ",".join(FAULTS[orchestrator]),
        "--out",
        str(out),
    ]
    process = subprocess.run(
        [*command, "--keep"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1400
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-6000:]
    work = Path(process.stderr.rpartition("The logs are in the working folder ")[2].strip())
    try:
        results: dict[str, Any] = json.loads((out / "results.json").read_text())
        assert results["same_answers"]
        assert [run["fault"] for run in results["runs"]] == ["none", *FAULTS[orchestrator]]
        for run in results["runs"]:
            assert run["rerun"] == RERUN_TASKS[run["fault"]], _log_excerpts(work, run)
            assert run["reloaded"] == RELOADED_TASKS[run["fault"]], _log_excerpts(work, run)
    finally:
        shutil.rmtree(work)
    assert (out / "chart.png").stat().st_size > 10_000
    assert "reloaded" in (out / "events.txt").read_text()


def test_rerun_tasks_are_read_from_the_journal() -> None:
    names = ("load", "join", "train", "train", "train", "load")
    lines = [JournalLine(name, "begin", os.getpid(), float(number)) for number, name in enumerate(names)]
    assert rerun_tasks(lines) == ("load", "train x2")


@pytest.mark.parametrize("option", ["--orchestrators", "--hosts"])
def test_orchestrators_are_chosen_by_either_name_of_the_option(option: str) -> None:
    assert demo.parse([option, "kedro"]).orchestrators == ["kedro"]
    assert demo.parse([]).orchestrators == ["airflow", "dagster", "kedro"]


@pytest.mark.parametrize("options", [["--orchestrators", "argo"], ["--faults", "power"], ["--rows", "0"]])
def test_wrong_options_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.parse(options)
    assert options[1] in capsys.readouterr().err
