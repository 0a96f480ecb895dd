"""A complete Kedro project, run by ``kedro run``: all runners, all start methods of worker processes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.phrases import human_bytes
from entrepot_io.scopes import folder_scope
from kedro_projects import execute, kedro, write_project

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

PROJECT_FILES = {
    "conf/base/catalog.yml": """
"{name}":
  type: entrepot_kedro.EntrepotDataset
report:
  type: handoff.datasets.JSONDataset
  filepath: report.json
""",
    "src/handoff/nodes.py": """
import os

import numpy as np
import pandas as pd


class Model:
    def __init__(self, weights):
        self.weights = weights


def make():
    return pd.DataFrame({"x": np.arange(100_000), "s": ["a", "b"] * 50_000}), os.getpid()


def fit(frame):
    return Model(frame["x"].to_numpy()[:1000])


def report(frame, model, producer):
    if os.environ.get("FAIL_REPORT"):
        raise RuntimeError("told to fail")
    column = frame["x"].to_numpy()
    return {
        "rows": len(frame),
        "sum": int(frame["x"].sum()),
        "writeable": bool(column.flags.writeable),
        "model": type(model).__name__,
        "weights": int(model.weights.sum()),
        "processes": [producer, os.getpid()],
    }
""",
    "src/handoff/writing.py": """
import json
from pathlib import Path

import numpy as np
import pandas as pd

ROWS = 1000
WRITTEN = {"number": 7, "share": 0.5, "day": pd.Timestamp("2030-01-01"), "text": "z"}


def first_row(frame):
    return {column: str(frame[column].iloc[0]) for column in WRITTEN}


def table():
    return pd.DataFrame(
        {
            "number": np.arange(ROWS),
            "share": np.linspace(0, 1, ROWS),
            "day": pd.date_range("2026-01-01", periods=ROWS),
            "text": ["a", "b"] * (ROWS // 2),
        }
    )


def write_into(frame):
    errors = {}
    for column, value in WRITTEN.items():
        try:
            frame.loc[0, column] = value
        except Exception as error:
            errors[column] = error
    Path("written.json").write_text(json.dumps({"failed": list(errors), "row": first_row(frame)}))
    for error in errors.values():
        raise error
    return first_row(frame)


def look(frame, after=None):
    return first_row(frame)
""",
    "src/handoff/pipeline_registry.py": """
from kedro.pipeline import node, pipeline

from handoff import nodes, writing


def register_pipelines():
    return {
        "writing": pipeline(
            [
                node(writing.table, None, "table", name="table"),
                node(writing.write_into, "table", "written", name="write"),
                node(writing.look, ["table", "written"], "report", name="look_after"),
            ]
        ),
        "reading": pipeline([node(writing.look, "table", "report", name="look")]),
        "__default__": pipeline(
            [
                node(nodes.make, None, ["frame", "producer"], name="make"),
                node(nodes.fit, "frame", "model", name="fit"),
                node(nodes.report, ["frame", "model", "producer"], "report", name="report"),
            ]
        )
    }
""",
}


# Kedro's own JSON dataset is in another distribution.
JSON_DATASET = """
import json
from pathlib import Path

from kedro.io import AbstractDataset


class JSONDataset(AbstractDataset):
    def __init__(self, filepath):
        self._path = Path(filepath)

    def load(self):
        return json.loads(self._path.read_text())

    def save(self, data):
        self._path.write_text(json.dumps(data))

    def _describe(self):
        return {"path": str(self._path)}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path, "handoff", PROJECT_FILES | {"src/handoff/datasets.py": JSON_DATASET})
    return tmp_path


def kedro_run(project: Path, address: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``kedro run``."""
    return kedro(project, "run", *arguments, variables={"ENTREPOT_ADDRESS": address} | environment)


def kedro_entrepot(project: Path, address: str, *arguments: str) -> str:
    """Run ``kedro entrepot ...`` and return its output."""
    process = kedro(project, "entrepot", *arguments, variables={"ENTREPOT_ADDRESS": address})
    assert process.returncode == (1 if "Error: " in process.stdout else 0), process.stdout
    return process.stdout


def read_report(project: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((project / "report.json").read_text())
    return report


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_parallel_runner(project: Path, daemon: Any, start: str) -> None:
    process = kedro_run(project, daemon.address, "--runner", "ParallelRunner", KEDRO_MP_CONTEXT=start)
    assert process.returncode == 0, process.stdout
    report = read_report(project)
    assert report | {"processes": None} == {
        "rows": 100_000,
        "sum": 100_000 * 99_999 // 2,
        "writeable": False,
        "model": "Model",
        "weights": 1000 * 999 // 2,
        "processes": None,
    }


@pytest.mark.parametrize("runner", ["ParallelRunner", "entrepot_kedro.EntrepotParallelRunner"])
def test_runners_log_their_progress(project: Path, daemon: Any, runner: str) -> None:
    process = kedro_run(project, daemon.address, "--runner", runner)
    assert process.returncode == 0, process.stdout
    assert "Completed 3 out of 3 tasks" in process.stdout
    assert "Pipeline execution completed successfully" in process.stdout


def test_resuming_in_the_session_of_the_failed_run(project: Path, daemon: Any) -> None:
    """The resumed run reads what the failed run computed, if both get the session from the environment."""
    failed = kedro_run(project, daemon.address, ENTREPOT_SESSION="nightly", FAIL_REPORT="1")
    assert failed.returncode != 0
    assert "told to fail" in failed.stdout
    resumed = kedro_run(project, daemon.address, "--from-nodes", "report", ENTREPOT_SESSION="nightly")
    assert resumed.returncode == 0, resumed.stdout
    producer, consumer = read_report(project)["processes"]
    assert producer != consumer


@pytest.mark.parametrize(
    "arguments", [("--from-nodes", "report"), ("--only-missing-outputs",)], ids=lambda each: each[0]
)
def test_resuming_without_the_session(project: Path, daemon: Any, arguments: tuple[str, ...]) -> None:
    """Kedro's own suggestion works: the run finds what the failed one has computed."""
    failed = kedro_run(project, daemon.address, FAIL_REPORT="1")
    assert failed.returncode != 0
    assert '--from-nodes "report"' in failed.stdout
    resumed = kedro_run(project, daemon.address, *arguments)
    assert resumed.returncode == 0, resumed.stdout
    producer, consumer = read_report(project)["processes"]
    assert producer != consumer
    assert "nothing is stored" in kedro_entrepot(project, daemon.address, "status")


def test_resuming_what_was_dropped_names_what_is_missing(project: Path, daemon: Any) -> None:
    assert kedro_run(project, daemon.address, FAIL_REPORT="1").returncode != 0
    assert "removed kedro/" in kedro_entrepot(project, daemon.address, "gc")
    resumed = kedro_run(project, daemon.address, "--from-nodes", "report")
    assert resumed.returncode != 0
    output = " ".join(resumed.stdout.split())
    assert "not found in the DataCatalog" in output  # fails before the first node
    assert not (project / "report.json").exists()


FIRST_ROW = {"number": "0", "share": "0.0", "day": "2026-01-01 00:00:00", "text": "a"}
WRITTEN = {"number": "7", "share": "0.5", "day": "2030-01-01 00:00:00", "text": "z"}


def test_writing_into_a_view_fails_and_names_the_setting(project: Path, daemon: Any) -> None:
    variables = {"ENTREPOT_SESSION": "nightly", "ENTREPOT_COPY": "never"}
    failed = kedro_run(project, daemon.address, "--pipeline", "writing", **variables)
    assert failed.returncode != 0
    output = " ".join(failed.stdout.split())
    assert "assignment destination is read-only" in output
    advice = (
        "Node 'write': Entrepot: inputs are read-only views of shared memory. To change one in place, copy it first "
        '(value.copy()), or make inputs writable: copy="on_write" (copies only the pages that are written) or '
        '"always", as an argument of the dataset or its pattern in the catalog (copy: on_write), or as ENTREPOT_COPY'
    )
    assert output.count(advice) == 1, output
    # pandas does not write into a column of strings, but replaces it, so nothing fails.
    written = json.loads((project / "written.json").read_text())
    assert written == {"failed": ["number", "share", "day"], "row": FIRST_ROW | {"text": "z"}}
    read = kedro_run(project, daemon.address, "--pipeline", "reading", **variables)
    assert read.returncode == 0, read.stdout
    assert read_report(project) == FIRST_ROW


@pytest.mark.parametrize("setting", ["", "  copy: on_write\n"], ids=["default", "on_write"])
def test_writing_changes_only_the_writers_copy(project: Path, daemon: Any, setting: str) -> None:
    catalog = project / "conf/base/catalog.yml"
    type_line = "  type: entrepot_kedro.EntrepotDataset\n"
    assert type_line in catalog.read_text()
    catalog.write_text(catalog.read_text().replace(type_line, f"{type_line}{setting}"))
    process = kedro_run(project, daemon.address, "--pipeline", "writing")
    assert process.returncode == 0, process.stdout
    assert json.loads((project / "written.json").read_text()) == {"failed": [], "row": WRITTEN}
    assert read_report(project) == FIRST_ROW


def test_resuming_by_the_command(project: Path, daemon: Any, tmp_path: Path) -> None:
    """It finds the failed run's session itself, computes what is missing, and leaves nothing."""
    assert "Error: no failed run of this project" in kedro_entrepot(project, daemon.address, "resume")
    assert kedro_run(project, daemon.address, FAIL_REPORT="1").returncode != 0
    status = kedro_entrepot(project, daemon.address, "status")
    assert "ended, " in status
    assert {"  frame", "  model", "  producer"} <= set(status.splitlines())
    checkpoint = tmp_path / "checkpoint"
    saved = kedro_entrepot(project, daemon.address, "checkpoint", str(checkpoint), "--dataset", "model")
    assert re.search(rf"^saved kedro/\S+ at {checkpoint}: 1 object, \d.* \w*B$", saved, re.MULTILINE), saved
    assert checkpoint.is_dir()
    assert "going on in session kedro/" in kedro_entrepot(project, daemon.address, "resume")
    producer, consumer = read_report(project)["processes"]
    assert producer != consumer  # which is what the failed run has computed
    assert "nothing is stored" in kedro_entrepot(project, daemon.address, "status")


def test_a_checkpoint_is_brought_back_by_the_command_that_is_printed(
    project: Path, daemon: Any, tmp_path: Path
) -> None:
    assert kedro_run(project, daemon.address, FAIL_REPORT="1").returncode != 0
    saved = kedro_entrepot(project, daemon.address, "checkpoint", str(tmp_path / "check points"))
    command = re.search(r"^to bring it back: (entrepot load .*)$", saved, re.MULTILINE)
    assert command is not None, saved
    assert "removed kedro/" in kedro_entrepot(project, daemon.address, "gc")
    loaded = execute(tmp_path, *shlex.split(command[1]), variables={"ENTREPOT_ADDRESS": daemon.address})
    assert loaded.returncode == 0, loaded.stdout
    resumed = kedro_entrepot(project, daemon.address, "resume")
    assert ", from report on" in resumed
    assert read_report(project)["rows"] == 100_000


def test_status_tells_sessions_that_are_named_and_not_in_use(project: Path, daemon: Any) -> None:
    assert kedro_run(project, daemon.address, ENTREPOT_SESSION="nightly", FAIL_REPORT="1").returncode != 0
    with entrepot.connect(daemon.address, scope=folder_scope("kedro", project)) as store:
        sizes = [each.nbytes for each in store.list(session="nightly")]
        expected = f"{len(sizes)} objects, {human_bytes(sum(sizes))}, last used "
        assert f"nightly: named, not in use, {expected}" in kedro_entrepot(project, daemon.address, "status")
        with store.session("nightly"):
            assert f"nightly: in use, {expected}" in kedro_entrepot(project, daemon.address, "status")


def test_removing_what_a_failed_run_has_left(project: Path, daemon: Any) -> None:
    assert kedro_run(project, daemon.address, FAIL_REPORT="1").returncode != 0
    assert "would remove kedro/" in kedro_entrepot(project, daemon.address, "gc", "--dry-run")
    assert "removed kedro/" not in kedro_entrepot(project, daemon.address, "gc", "--older-than", "1h")
    assert "removed kedro/" in kedro_entrepot(project, daemon.address, "gc")
    assert "nothing to remove" in kedro_entrepot(project, daemon.address, "gc")
    assert "nothing is stored" in kedro_entrepot(project, daemon.address, "status")
    assert "Error: there is no session 'kedro/x'" in kedro_entrepot(
        project, daemon.address, "resume", "--session", "kedro/x"
    )
