"""SIGKILL of a node's process, of the daemon, of the whole store, SIGSTOP of the daemon: the next run goes on with what
is left."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from kedro_projects import kedro, write_project

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "failover"))

import faults

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

ROWS = 100_000
PROJECT_FILES = {
    "conf/base/entrepot.yml": "intermediates: '*'\n",
    "src/killed/nodes.py": f"""
import json, os, signal
from pathlib import Path

import numpy as np


def record(name):
    with open("journal", "a") as journal:
        journal.write(name + "\\n")


def make():
    record("make")
    return np.arange({ROWS})


def double(values):
    record("double")
    return values * 2


def strike(doubled):
    record("strike")
    fault = os.environ.get("FAULT", "")
    if "daemon" in fault or "stop" in fault:
        import entrepot

        with entrepot.connect(scope="faults") as store:
            pid = store.status()["pid"]
        Path("daemon").write_text(str(pid))
        os.kill(pid, signal.SIGKILL if "daemon" in fault else signal.SIGSTOP)
    if "store" in fault:
        import faults

        faults.kill_private_store()
    if "process" in fault:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(doubled[1])


def last(doubled, struck):
    record("last")
    Path("answer").write_text(json.dumps([int(doubled.sum()), struck]))
""",
    "src/killed/pipeline_registry.py": """
from kedro.pipeline import node, pipeline

from killed import nodes


def register_pipelines():
    return {
        "__default__": pipeline(
            [
                node(nodes.make, None, "values", name="make"),
                node(nodes.double, "values", "doubled", name="double"),
                node(nodes.strike, "doubled", "struck", name="strike"),
                node(nodes.last, ["doubled", "struck"], None, name="last"),
            ]
        )
    }
""",
}


@dataclass
class Project:
    """A project, and its private store.

    Attributes:
        folder: directory of the project.
        variables: environment of its runs.
    """

    folder: Path
    variables: dict[str, str]

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """Run ``kedro run``; return its exit code and its output."""
        process = kedro(
            self.folder,
            "run",
            *arguments,
            variables={"PYTHONPATH": str(Path(faults.__file__).parent)} | self.variables | variables,
        )
        return process.returncode, process.stdout

    def node_runs(self) -> Counter[str]:
        """How often each node has begun so far."""
        return Counter((self.folder / "journal").read_text().split())

    def answer(self) -> list[int]:
        """What the last node has written."""
        answer: list[int] = json.loads((self.folder / "answer").read_text())
        return answer


def continue_daemon(folder: Path) -> None:
    """Send SIGCONT to the daemon that a node has stopped."""
    with suppress(ProcessLookupError):  # or killed
        os.kill(int((folder / "daemon").read_text()), signal.SIGCONT)


@pytest.fixture
def project(tmp_path: Path, socket_folder: Path) -> Iterator[Project]:
    write_project(tmp_path, "killed", PROJECT_FILES)
    yield Project(tmp_path, faults.private_store_variables(socket_folder))
    if (tmp_path / "daemon").exists():
        continue_daemon(tmp_path)
    faults.stop_private_store(socket_folder)


ANSWER = [ROWS * (ROWS - 1), 2]
ONCE = {"make": 1, "double": 1, "strike": 1, "last": 1}
long = pytest.mark.exhaustive


def runner_arguments(runner: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Arguments and variables of a run: the name of a runner, or a start method of ParallelRunner's workers."""
    if runner.endswith("Runner"):
        return ("--runner", runner), {}
    return ("--runner", "ParallelRunner"), {"KEDRO_MP_CONTEXT": runner}


@pytest.mark.parametrize(
    "runner", ["fork", *(pytest.param(name, marks=long) for name in ("spawn", "forkserver", "SequentialRunner"))]
)
def test_a_killed_process(project: Project, runner: str) -> None:
    """A worker: the run sees only that its pool is broken. Under the other runners, it is the run itself."""
    arguments, variables = runner_arguments(runner)
    code, output = project.run(*arguments, FAULT="process", **variables)
    if arguments[1] == "ParallelRunner":
        assert code == 1, output
        assert "BrokenProcessPool" in output
    else:
        assert code == -signal.SIGKILL, output
    code, output = project.run(*arguments, "--only-missing-outputs", **variables)
    assert code == 0, output
    assert "Continuing in the session of an earlier run" in output
    assert project.node_runs() == ONCE | {"strike": 2}
    assert project.answer() == ANSWER


@long
@pytest.mark.parametrize("runner", ["ThreadRunner", "fork"])
def test_a_killed_daemon_is_not_noticed(project: Project, runner: str) -> None:
    arguments, variables = runner_arguments(runner)
    code, output = project.run(*arguments, FAULT="daemon", **variables)
    assert code == 0, output
    assert project.node_runs() == ONCE
    assert project.answer() == ANSWER


@long
@pytest.mark.parametrize(
    ("runner", "fault"), [("ThreadRunner", "store"), ("fork", "store process"), ("fork", "store"), ("spawn", "store")]
)
def test_a_killed_store(project: Project, runner: str, fault: str) -> None:
    """Nothing is left in the store, and the error says so; the next run computes it again."""
    arguments, variables = runner_arguments(runner)
    code, output = project.run(*arguments, FAULT=fault, **variables)
    assert code != 0, output
    if "process" not in fault:
        assert "was lost with the previous store" in " ".join(output.split()), output
    code, output = project.run(*arguments, "--only-missing-outputs", **variables)
    assert code == 0, output
    runs = project.node_runs()
    assert (runs["make"], runs["double"]) == (2, 2)
    assert project.answer() == ANSWER


@long
def test_a_killed_process_and_a_killed_daemon(project: Project) -> None:
    """The keeper starts the daemon again, with all values."""
    arguments, variables = runner_arguments("fork")
    code, output = project.run(*arguments, FAULT="daemon process", **variables)
    assert code == 1, output
    assert "BrokenProcessPool" in output
    code, output = project.run(*arguments, "--only-missing-outputs", **variables)
    assert code == 0, output
    assert project.node_runs() == ONCE | {"strike": 2}
    assert project.answer() == ANSWER


@long
@pytest.mark.parametrize("runner", ["SequentialRunner", "fork"])
def test_a_daemon_that_stays_stopped_fails_the_run_which_then_continues(project: Project, runner: str) -> None:
    """The error says how to let the daemon go on; after that, nothing is lost."""
    arguments, variables = runner_arguments(runner)
    code, output = project.run(*arguments, FAULT="stop", **variables)
    assert code == 1, output
    pid = int((project.folder / "daemon").read_text())
    assert "did not respond within" in output
    assert f"kill -CONT {pid}" in output
    continue_daemon(project.folder)
    code, output = project.run(*arguments, "--only-missing-outputs", **variables)
    assert code == 0, output
    assert "Continuing in the session of an earlier run" in output
    assert project.node_runs() == ONCE | {"strike": 2}
    assert project.answer() == ANSWER
