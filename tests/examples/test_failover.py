"""End-to-end test of the failover example on a few thousand flights: each orchestrator, each fault."""

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
from examples.failover.runs import made_again
from examples.failover.tasks import Line

ROOT = Path(__file__).resolve().parents[2]
ROWS = 4000
# Expected reruns (RERUN) and reloads (RELOADED) by fault.
RERUN = {"none": [], "task": ["train"], "daemon": [], "store": ["load", "join"]}
TELLING = re.compile("error|warning|mismatch|Trying to enqueue|executor event|Entrepot", re.IGNORECASE)
RELOADED = {"none": [], "task": [], "daemon": [], "store": ["features"]}


def _why(work: Path, run: dict[str, Any]) -> str:
    """Log excerpts for a run with an unexpected result: its own logs, and matching lines of others that name it."""
    lines = [f"{run['host']}, {run['fault']}: rerun {run['rerun']}, reloaded {run['reloaded']}"]
    name = f"{run['host']}-{run['fault']}"
    for log in sorted(work.rglob("*.log")):
        own = name in str(log)
        text = log.read_text(errors="replace").splitlines()
        said = [line[:600] for line in text if own or (name in line and TELLING.search(line))]
        lines += [f"--- {log.relative_to(work)}", *said[-60:]] if said else []
    return "\n".join(lines)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("host", ["airflow", "dagster", "kedro"])
def test_every_fault_ends_with_the_right_answer(host: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    out, environment = tmp_path / "out", dict(os.environ)
    if host == "airflow":
        database = request.getfixturevalue("airflow_database")()
        environment["DEMO_AIRFLOW_DATABASE"] = database["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    command = [sys.executable, "-m", "examples.failover", "--rows", str(ROWS), "--hosts", host, "--out", str(out)]
    ended = subprocess.run(
        [*command, "--keep"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1400
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-6000:]
    work = Path(ended.stderr.rpartition("The working folder with all logs is ")[2].strip())
    try:
        results: dict[str, Any] = json.loads((out / "results.json").read_text())
        assert results["same_answers"]
        assert [run["fault"] for run in results["runs"]] == ["none", "task", "daemon", "store"]
        for run in results["runs"]:
            assert run["rerun"] == RERUN[run["fault"]], _why(work, run)
            assert run["reloaded"] == RELOADED[run["fault"]], _why(work, run)
    finally:
        shutil.rmtree(work)
    assert (out / "chart.png").stat().st_size > 10_000
    assert "reloaded" in (out / "events.txt").read_text()


def test_what_ran_again_is_told_from_the_journal() -> None:
    names = ("load", "join", "train", "train", "train", "load")
    lines = [Line(name, "begin", os.getpid(), float(number)) for number, name in enumerate(names)]
    assert made_again(lines) == ("load", "train x2")


@pytest.mark.parametrize("options", [["--hosts", "argo"], ["--faults", "power"], ["--rows", "0"]])
def test_wrong_options_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.parse(options)
    assert options[1] in capsys.readouterr().err
