"""Contents of the store after ``kedro run``, under each runner: after a good run, and after a failed one."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot_io.keys import kedro_key
from kedro_projects import execute, write_project

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

# In one process, and in several. Kedro's others end runs in the same way: test_held_sessions.py has its ParallelRunner
# in `make test`, test_runners.py all.
RUNNERS = [
    "SequentialRunner",
    "entrepot_kedro.EntrepotParallelRunner",
    pytest.param("ThreadRunner", marks=pytest.mark.exhaustive),
    pytest.param("ParallelRunner", marks=pytest.mark.exhaustive),
]
DATASETS = ("raw", "clean", "kept", "mine", "report")
# Sessions that the catalog names, with the datasets in them: the project's own one, and a named one.
KEPT = {"": {"kept"}, "nightly": {"mine"}}
PROJECT_FILES = {
    "conf/base/catalog.yml": """
"{name}":
  type: entrepot_kedro.EntrepotDataset
kept:
  type: entrepot_kedro.EntrepotDataset
  session: ""
mine:
  type: entrepot_kedro.EntrepotDataset
  session: nightly
""",
    "src/ends/nodes.py": """
import os

import numpy as np


def record(name):
    with open("journal", "a") as journal:
        journal.write(name + "\\n")


def make():
    record("make")
    return np.arange(100_000)


def clean(raw):
    record("clean")
    return raw * 2


def keep(values):
    record("keep")
    return values + 1, values + 2


def report(values, kept):
    record("report")
    if os.environ.get("FAIL_REPORT"):
        raise RuntimeError("told to fail")
    assert int(kept.sum()) == int(values.sum()) + 100_000
    return values[:50_000]
""",
    "src/ends/pipeline_registry.py": """
from kedro.pipeline import node, pipeline

from ends import nodes


def register_pipelines():
    return {
        "__default__": pipeline(
            [
                node(nodes.make, None, "raw", name="make"),
                node(nodes.clean, "raw", "clean", name="clean"),
                node(nodes.keep, "clean", ["kept", "mine"], name="keep"),
                node(nodes.report, ["clean", "kept"], "report", name="report"),
            ]
        )
    }
""",
}


@dataclass
class Project:
    """A Kedro project, and the store that its runs use.

    Attributes:
        folder: directory of the project.
        address: address of the store.
        runner: name of the runner.
    """

    folder: Path
    address: str
    runner: str

    def execute(self, *command: str, **variables: str) -> tuple[int, str]:
        """Run a command of the environment in the project's folder; return its exit code and its output."""
        process = execute(self.folder, *command, variables={"ENTREPOT_ADDRESS": self.address} | variables)
        return process.returncode, " ".join(process.stdout.split())

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        return self.execute("kedro", "run", "--runner", self.runner, *arguments, **variables)

    def node_runs(self) -> Counter[str]:
        """How often each node ran so far."""
        return Counter((self.folder / "journal").read_text().split())

    def stored_datasets(self) -> dict[str, set[str]]:
        """Datasets in the store, by session; checks that there is nothing else."""
        code, listing = self.execute("entrepot", "sessions", "--json")
        assert code == 0, listing
        (scope,) = {entry["scope"] for entry in json.loads(listing)}
        by_session: dict[str, set[str]] = {}
        with entrepot.connect(self.address, scope=scope) as store:
            for info in store.sessions():
                session = store.session(info.session)
                names = {name for name in DATASETS if session.exists(session.derive(kedro_key(name)))}
                assert len(names) == info.objects, info
                if names:
                    by_session[info.session] = names
            assert store.status()["objects"] == sum(len(names) for names in by_session.values())
        return by_session


@pytest.fixture
def project(tmp_path: Path, daemon: Any, request: pytest.FixtureRequest) -> Project:
    write_project(tmp_path, "ends", PROJECT_FILES)
    return Project(tmp_path, daemon.address, request.param)


def advised(output: str) -> tuple[str, list[str], str]:
    """Session, arguments and command that a failed run's log advises."""
    pattern = r"with (--from-nodes \S+), or with --only-missing-outputs; to drop them: (entrepot sessions rm (\S+))"
    advice = re.search(pattern, output)
    assert advice is not None, output
    return advice[3], shlex.split(advice[1]), advice[2]


@pytest.mark.parametrize("project", RUNNERS, indirect=True)
def test_a_good_run_leaves_what_the_catalog_keeps(project: Project) -> None:
    code, output = project.run()
    assert code == 0, output
    assert project.stored_datasets() == KEPT
    assert "to drop them" not in output


def failed_run(project: Project) -> tuple[str, list[str], str]:
    """Let a run fail in its last node, check what it leaves, and return what its log advises."""
    code, output = project.run(FAIL_REPORT="1")
    assert code != 0
    assert "told to fail" in output
    assert "which leaves as it is what exists already" not in output, "this run has saved it"
    session, arguments, drop = advised(output)
    assert project.stored_datasets() == KEPT | {session: {"clean"}}, output  # `raw` had its last consumer
    assert drop == f"entrepot sessions rm {session}"
    return session, arguments, drop


@pytest.mark.parametrize("project", RUNNERS, indirect=True)
def test_a_failed_run_is_resumed_as_its_log_says(project: Project) -> None:
    _, arguments, _ = failed_run(project)
    code, output = project.run(*arguments)
    assert code == 0, output
    assert project.node_runs() == {"make": 1, "clean": 1, "keep": 1, "report": 2}
    assert project.stored_datasets() == KEPT


@pytest.mark.parametrize("project", RUNNERS[:1], indirect=True)
def test_a_failed_run_is_dropped_as_its_log_says(project: Project) -> None:
    _, _, drop = failed_run(project)
    code, output = project.execute(*shlex.split(drop))
    assert code == 0, output
    assert project.stored_datasets() == KEPT
