"""The fault matrix on Kedro: ``kedro run`` of a project, in separate processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import faults
import kedro_project
import pipeline as work
from entrepot_io.policy.events import Event, log_file, read_events
from faults import MATRIX, SHORT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
RESUMED = ("--only-missing-outputs",)
OWN = ("--runner", "entrepot_kedro.EntrepotParallelRunner")
RUNNERS = {
    "sequential": (),
    "async": ("--runner-params", "is_async=True"),
    "thread": ("--runner", "ThreadRunner"),
    "parallel": OWN,
    "spawn": OWN,  # a fresh interpreter for each worker
}
VARIABLES = {"spawn": {"KEDRO_MP_CONTEXT": "spawn"}}
FULL = os.environ.get("ENTREPOT_FAULT_MATRIX") == "full"
# For the other runners, only what is specific to them: nodes in threads and processes, which rerun what they miss.
SHORT_OTHERS = [
    ("task_killed", "rerun", "parallel"),
    ("task_killed_on_last_try", "rerun", "parallel"),
    ("store_killed", "rerun", "parallel"),
    ("exception", "rerun", "parallel"),
    ("object_lost", "rerun", "async"),
    ("object_lost", "rerun", "spawn"),
    ("private_killed", "rerun", "thread"),
    ("private_killed", "rerun", "parallel"),
    ("store_killed", "rerun", "thread"),
]
CASES = (
    [(fault, policy, runner) for fault, policy in MATRIX for runner in RUNNERS]
    if FULL
    else [*((fault, policy, "sequential") for fault, policy in SHORT), *SHORT_OTHERS]
)


@pytest.fixture
def project(tmp_path: Path, socket_folder: Path) -> Iterator[kedro_project.Project]:
    made = kedro_project.Project(tmp_path / "project", tmp_path / "work", f"unix://{socket_folder}/store.sock")
    made.work.mkdir()
    made.write()
    yield made
    faults.end_stores(made.work)
    faults.end_private(socket_folder)


@pytest.fixture
def small(tmp_path: Path, small_disk: Callable[[Path, int], AbstractContextManager[str]]) -> Iterator[Path]:
    """Directory on a disk that is full after 64 KiB."""
    with small_disk(tmp_path / "small", 64 << 10) as refused:
        if refused:
            pytest.skip(refused)
        yield tmp_path / "small"


def events(project: kedro_project.Project) -> list[Event]:
    return list(read_events(log_file(kedro_project.SCOPE, project.work / "events")))


def set_up(project: kedro_project.Project, fault: str, policy: str, target: Path, small: Path | None) -> None:
    project.policy = faults.prepare(project.work, fault, policy, project.address, target, small)
    if project.address:
        faults.start_store(project.work, project.address)


@pytest.mark.parametrize(("fault", "policy", "runner"), CASES)
def test_a_fault(
    project: kedro_project.Project,
    tmp_path: Path,
    socket_folder: Path,
    request: pytest.FixtureRequest,
    fault: str,
    policy: str,
    runner: str,
) -> None:
    disk = request.getfixturevalue("small") if policy == "disk_full" else None
    variables = dict(VARIABLES.get(runner, {}))
    if fault == "private_killed":
        project.address = ""
        variables |= faults.private(socket_folder)
    set_up(project, fault, policy, tmp_path / "checkpoints", disk)
    outcome = MATRIX[fault, policy]
    expected = dict(outcome.runs)
    if runner == "spawn":  # its workers inherit nothing, so here only the settings name the policy
        (project.folder / "src/struck/settings.py").write_text(f"ENTREPOT_POLICY = {str(project.policy)!r}\n")
        project.policy = None
    code = project.run(*RUNNERS[runner], **variables)
    if fault.startswith("task_killed") and RUNNERS[runner] != OWN:
        # The node runs in the process of `kedro run`: nothing is left that could retry, but the values are.
        assert code == -signal.SIGKILL, project.text
        if fault == "task_killed_on_last_try":
            assert project.run(*RUNNERS[runner], *RESUMED, **variables) == -signal.SIGKILL, project.text
            expected["join"] = 3
            faults.heal(project.work)
        code = project.run(*RUNNERS[runner], *RESUMED, **variables)
    elif fault == "task_killed_on_last_try":
        assert code > 0, project.text
        assert "its process was killed, and it does not run again: 1 retries were tried" in project.text
        faults.heal(project.work)
        expected["join"] = 3
        code = project.run(*RUNNERS[runner], *RESUMED, **variables)
    if outcome.reason:
        assert code > 0, project.text
        assert outcome.reason in project.text
        assert not (project.work / "answer").exists()
        assert work.runs(project.work)["report"] == 0
        expected["report"] = 0
        if fault != "exception":
            expected["join"] = 0  # its inputs did not exist
    else:
        assert code == 0, project.text
        assert int((project.work / "answer").read_text()) == work.ANSWER
    assert work.runs(project.work) == expected, project.text
    kinds = {event.kind for event in events(project)}
    assert set(outcome.events) <= kinds, project.text
    # The events are in Kedro's own log.
    for kind in ("reloaded", "rerun_planned", "object_lost", "gave_up"):
        assert (f"Entrepot: {kind.replace('_', ' ')}" in project.text) == (kind in kinds), project.text


def test_a_pool_that_broke(project: kedro_project.Project, tmp_path: Path) -> None:
    """Kedro's own ParallelRunner ends when a worker is killed; the next run recomputes only what is missing."""
    set_up(project, "task_killed", "rerun", tmp_path / "checkpoints", None)
    own = ("--runner", "ParallelRunner")
    assert project.run(*own) > 0
    assert "BrokenProcessPool" in project.text
    assert project.run(*own, *RESUMED) == 0, project.text
    assert int((project.work / "answer").read_text()) == work.ANSWER
    assert work.runs(project.work) == faults.again(join=1), project.text


def test_killed_run_and_killed_store(project: kedro_project.Project, tmp_path: Path) -> None:
    """Only checkpoints are left: the next run loads what they contain, and recomputes only the rest."""
    set_up(project, "task_killed", "checkpoints", tmp_path / "checkpoints", None)
    assert project.run() == -signal.SIGKILL, project.text
    faults.kill_store(project.work, project.address)
    assert project.run(*RESUMED) == 0, project.text
    assert int((project.work / "answer").read_text()) == work.ANSWER
    # `strike` produces a value without a checkpoint, which `join` reads.
    assert work.runs(project.work) == faults.again(join=1, strike=1), project.text
    assert "Going on in the session of an earlier run" in project.text


def test_a_run_that_ended_well_is_not_gone_on_with(project: kedro_project.Project, tmp_path: Path) -> None:
    set_up(project, "none", "checkpoints", tmp_path / "checkpoints", None)
    assert project.run() == 0, project.text
    assert project.run(*RESUMED) == 0, project.text
    assert work.runs(project.work) == faults.again(**dict.fromkeys(work.TASKS, 1))


def test_a_wrong_policy_is_said_at_the_start(project: kedro_project.Project, tmp_path: Path) -> None:
    set_up(project, "none", "checkpoints", tmp_path / "checkpoints", None)
    assert project.policy is not None
    # Here the project's settings name the policy.
    text = project.policy.read_text() + "checkpoits: {}\n"
    (project.folder / "conf/base/entrepot.yaml").write_text(text)
    (project.folder / "src/struck/settings.py").write_text('ENTREPOT_POLICY = "conf/base/entrepot.yaml"\n')
    project.policy = None
    assert project.run() > 0
    assert f"{project.folder}/conf/base/entrepot.yaml:{len(text.splitlines())}:1:" in project.text
    assert "checkpoits" in project.text
    assert work.runs(project.work) == dict.fromkeys(work.TASKS, 0)
