"""SIGKILL and SIGSTOP of each process of ``kedro run`` with ParallelRunner, at each step.

The answer is right, at once or after a run that continues and computes only what is missing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import kedro_strikes
import pytest
from kedro_projects import kedro_environment, write_project
from kedro_strikes import ANSWER, PROCESSES, STEPS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "failover"))

import faults

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

RUN_SECONDS = 240.0
STOP_SECONDS = 3.0  # shorter than any time-out, and longer than the rest of the run
TIMEOUT_SECONDS = 30.0  # after which a daemon that does not answer is an error
HINT = "or with --only-missing-outputs"


@dataclass
class Outcome:
    """Outcome of ``kedro run``.

    Attributes:
        code: exit code, negative for the signal that ended it.
        output: what it has written.
        ended: ``time.time()`` of its end.
    """

    code: int
    output: str
    ended: float


class Project:
    """A project with a private store of its own.

    Args:
        folder: directory of the project.
        store_variables: environment that names the store.
    """

    def __init__(self, folder: Path, store_variables: dict[str, str]) -> None:
        self.folder = folder
        self._store_variables = store_variables
        self._groups: list[int] = []

    def use_policy(self) -> None:
        """Checkpoint ``doubled``, and wait for a daemon that does not answer."""
        text = kedro_strikes.POLICY.format(target=self.folder / "checkpoints")
        (self.folder / "policy.yaml").write_text(text)
        self._store_variables["ENTREPOT_POLICY"] = str(self.folder / "policy.yaml")

    def run(self, *arguments: str, **variables: str) -> Outcome:
        """Run ``kedro run`` with one worker; processes that it leaves behind stay until the test ends."""
        log = self.folder / "output"
        paths = [Path(kedro_strikes.__file__).parent, Path(faults.__file__).parent]
        environment = {
            "PYTHONPATH": os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")]),
            "ENTREPOT_EVENTS": str(self.folder / "events"),
        }
        command = ["run", "--runner", "ParallelRunner", "--runner-params", "max_workers=1", *arguments]
        with log.open("w") as output:  # no pipe: a worker whose parent was killed would keep it open
            process = subprocess.Popen(
                [sys.executable, "-m", "kedro", *command],
                cwd=self.folder,
                env=kedro_environment() | environment | self._store_variables | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._groups.append(process.pid)
            code = process.wait(RUN_SECONDS)
        return Outcome(code, " ".join(log.read_text().split()), time.time())

    def moment(self, name: str) -> float:
        """When the process was certainly stopped (``stopped``), or is about to go on (``continued``)."""
        return float((self.folder / name).read_text())

    def node_runs(self) -> Counter[str]:
        """How often each node has begun so far."""
        return Counter((self.folder / "journal").read_text().split())

    def answer(self) -> list[int]:
        """What the last node has written."""
        answer: list[int] = json.loads((self.folder / "answer").read_text())
        return answer

    def pinned_bytes(self) -> int:
        """What processes have mapped of the private store's objects."""
        status = subprocess.run(
            [sys.executable, "-m", "entrepot", "status", "--json"],
            env=os.environ | self._store_variables,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        pinned: int = json.loads(status.stdout)["pinned_bytes"]
        return pinned

    def end(self) -> None:
        """End what the runs have left behind."""
        if (self.folder / "stopped").exists():
            with suppress(ProcessLookupError):
                os.kill(int((self.folder / "struck").read_text()), signal.SIGCONT)
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


@pytest.fixture
def project(tmp_path: Path, socket_folder: Path) -> Iterator[Project]:
    write_project(tmp_path, "struck", kedro_strikes.PROJECT_FILES)
    project = Project(tmp_path, faults.private_store_variables(socket_folder))
    yield project
    project.end()
    faults.stop_private_store(socket_folder)


# Of each process, one step in the shorter run of the tests; "release" happens without a policy only.
CHEAP = {
    ("parent", "load", "SIGKILL"),
    ("worker", "saved", "SIGKILL"),
    ("daemon", "checkpoint", "SIGKILL"),
    ("keeper", "release", "SIGKILL"),
    ("daemon", "save", "SIGSTOP"),
}
CASES = [
    pytest.param(
        process,
        step,
        signal_name,
        marks=() if (process, step, signal_name) in CHEAP else pytest.mark.exhaustive,
    )
    for process in PROCESSES
    for step in STEPS
    for signal_name in ("SIGKILL", "SIGSTOP")
]


@pytest.mark.parametrize(("process", "step", "signal_name"), CASES)
def test_a_signal(project: Project, wait_until: Callable[..., None], process: str, step: str, signal_name: str) -> None:
    if step == "checkpoint":
        project.use_policy()
    # Forked workers have no resource tracker.
    variables = {"KEDRO_MP_CONTEXT": "spawn" if process == "resource tracker" else "fork"}
    struck = project.run(STRIKE=f"{step} {process} {signal_name}", STRIKE_SECONDS=str(STOP_SECONDS), **variables)
    assert (project.folder / "struck").exists(), struck.output
    expected_runs = {"make": 1, "double": 1, "first": 1, "last": 1}
    if signal_name == "SIGKILL" and process in ("parent", "worker"):
        if process == "parent":
            assert struck.code == -signal.SIGKILL, struck.output
        else:
            assert struck.code == 1, struck.output
            assert "BrokenProcessPool" in struck.output
            assert (step == "checkpoint") or HINT in struck.output, struck.output
        resumed = project.run("--only-missing-outputs", **variables)
        assert resumed.code == 0, struck.output + resumed.output
        assert "Continuing in the session of an earlier run" in resumed.output
        runs = project.node_runs()
        assert (runs["make"], runs["double"]) == (1, 1), struck.output + resumed.output
        wait_until(lambda: not project.pinned_bytes(), "the workers of the killed run to end", 60)
    else:
        assert struck.code == 0, struck.output
        assert project.node_runs() == expected_runs
    assert project.answer() == ANSWER
    if signal_name == "SIGSTOP":
        assert struck.ended > project.moment("stopped")
        if process in ("parent", "worker", "daemon"):
            assert struck.ended > project.moment("continued"), "the run has not waited"
        else:
            assert not (project.folder / "continued").exists(), "nobody waits for a keeper, or for the tracker"


@pytest.mark.exhaustive
@pytest.mark.parametrize("has_policy", [False, True], ids=["no policy", "policy"])
def test_a_daemon_that_is_stopped_for_longer_than_the_time_out(
    project: Project, wait_until: Callable[..., None], has_policy: bool
) -> None:
    """The run fails and says why, whatever a policy has for ``daemon_lost``: the daemon is not lost, but has to be
    continued. Then another run continues."""
    if has_policy:
        project.use_policy()
    struck = project.run(STRIKE="save daemon SIGSTOP", STRIKE_SECONDS=str(TIMEOUT_SECONDS + 20))
    pid = int((project.folder / "struck").read_text())
    assert struck.code == 1, struck.output
    assert "did not respond within" in struck.output
    assert f"resume it with 'kill -CONT {pid}'" in struck.output
    assert struck.ended - project.moment("stopped") >= TIMEOUT_SECONDS - 1
    wait_until((project.folder / "continued").exists, "the end of the stop")
    resumed = project.run("--only-missing-outputs")
    assert resumed.code == 0, resumed.output
    assert project.node_runs() == {"make": 1, "double": 1, "first": 2, "last": 1}
    assert project.answer() == ANSWER
