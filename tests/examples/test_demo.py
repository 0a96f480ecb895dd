"""End-to-end test of the demo on a few thousand flights: each orchestrator with Entrepot and with another transport."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = 4000
TASKS = {"load", "join", "features", "train", "score"}
VALUES = {"tables", "joined", "featured", "model", "scored"}  # Kedro names values instead of tasks


def run_demo(tmp_path: Path, *options: str, **variables: str) -> dict[str, Any]:
    """Run the demo and return its results."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "examples.flights", "--rows", str(ROWS), "--scale", "1", "--out", str(out)]
    process = subprocess.run(
        [*command, *options],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)} | variables,
        capture_output=True,
        text=True,
        timeout=1400,
    )
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"
    assert (out / "chart.png").stat().st_size > 10_000
    assert "<title>Entrepot: flights</title>" in (out / "index.html").read_text(encoding="utf-8")
    assert list(tmp_path.glob("flights-*")) == []  # the working directory was removed
    results: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert results["same_answers"] is True
    for run in results["runs"]:
        assert run["report"]["flights"] == ROWS
        assert run["calls"] == 12  # five values saved, seven inputs loaded
        assert run["peak_bytes"] > run["idle_bytes"] >= 0
        assert run["samples"] > 3
    return results


def by_name(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The runs by the names of their transports."""
    return {run["name"]: run for run in results["runs"]}


def check_references(run: dict[str, Any], other: dict[str, Any]) -> None:
    """Check that Entrepot copied the values once, into shared memory, and wrote little to files and sockets."""
    assert run["bytes_stored"] > 1_000_000
    assert run["bytes_written"] < other["bytes_written"] / 3
    assert other["bytes_stored"] == 0


@pytest.mark.exhaustive  # two Airflows; tests/repo/test_tutorials.py follows the tutorial on one
@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1500)
def test_airflow(airflow_database: Callable[[], dict[str, str]], tmp_path: Path) -> None:
    database = airflow_database()["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    runs = by_name(run_demo(tmp_path, "--orchestrators", "airflow", DEMO_AIRFLOW_DATABASE=database))
    assert runs.keys() == {"entrepot", "objectstorage"}
    check_references(runs["entrepot"], runs["objectstorage"])
    travelled = {task: json.loads(entry) for task, entry in runs["entrepot"]["travelled"].items()}
    assert travelled.keys() == TASKS
    for task, entry in travelled.items():
        assert entry["entrepot"] == 1, task
        assert len(entry["id"]) == 40, task
    assert travelled["join"]["shape"][0] == ROWS
    assert all(entry.startswith("file://") for entry in runs["objectstorage"]["travelled"].values())


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1500)
def test_dagster(tmp_path: Path) -> None:
    runs = by_name(run_demo(tmp_path, "--orchestrators", "dagster"))
    assert runs.keys() == {"entrepot", "files"}
    check_references(runs["entrepot"], runs["files"])
    travelled = {step: json.loads(metadata) for step, metadata in runs["entrepot"]["travelled"].items()}
    assert travelled.keys() == TASKS
    assert all(len(metadata["entrepot/id"]) == 40 for metadata in travelled.values())
    assert all("path" in json.loads(metadata) for metadata in runs["files"]["travelled"].values())


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1500)
def test_kedro(tmp_path: Path) -> None:
    runs = by_name(run_demo(tmp_path, "--orchestrators", "kedro"))
    assert runs.keys() == {"entrepot", "pickle", "memory"}
    check_references(runs["entrepot"], runs["pickle"])
    datasets = {"entrepot": "EntrepotDataset", "pickle": "PickleDataset", "memory": "SharedMemoryDataset"}
    for name, dataset in datasets.items():
        assert runs[name]["travelled"] == dict.fromkeys(VALUES, dataset)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_a_run_that_fails_says_where(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "examples.flights",
        "--orchestrators",
        "kedro",
        "--transports",
        "pickle",
        "--timeout",
        "1",
    ]
    process = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 1
    assert "demo: Kedro: still running after 1 s" in process.stderr
    (work,) = tmp_path.glob("flights-*")
    assert str(work) in process.stderr  # the working directory is kept, with its logs
    assert not (tmp_path / "out").exists()
