"""The fault matrix on Kedro: ``kedro run`` of a project, in separate processes."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import faults
import kedro_project
import pipeline as work
from entrepot_policy.state.events import Event, log_file, read_events
from faults import MATRIX, SHORT_MATRIX

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
RESUME_ARGUMENTS = ("--only-missing-outputs",)
PARALLEL_NODES = 2
ENTREPOT_RUNNER = (
    "--runner",
    "entrepot_kedro.EntrepotParallelRunner",
    "--runner-params",
    f"max_workers={PARALLEL_NODES}",
)
RUNNERS = {
    "sequential": (),
    "async": ("--runner-params", "is_async=True"),
    "thread": ("--runner", "ThreadRunner"),
    "parallel": ENTREPOT_RUNNER,
    "spawn": ENTREPOT_RUNNER,  # a fresh interpreter for each worker
}
IN_PROCESS_RUNNERS = ("sequential", "async", "thread")
RUNNER_VARIABLES = {"spawn": {"KEDRO_MP_CONTEXT": "spawn"}}
FULL_MATRIX = os.environ.get("ENTREPOT_FAULT_MATRIX") == "full"
# For the other runners, only what is specific to them: nodes in threads and processes, which rerun what they miss.
OTHER_RUNNER_CASES = [
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
    if FULL_MATRIX
    else [*((fault, policy, "sequential") for fault, policy in SHORT_MATRIX), *OTHER_RUNNER_CASES]
)


@pytest.fixture
def project(tmp_path: Path, socket_folder: Path) -> Iterator[kedro_project.Project]:
    new_project = kedro_project.Project(tmp_path / "project", tmp_path / "work", f"unix://{socket_folder}/store.sock")
    new_project.work.mkdir()
    new_project.write()
    yield new_project
    faults.stop_stores(new_project.work)
    faults.stop_private_store(socket_folder)


@pytest.fixture
def small(tmp_path: Path, small_disk: Callable[[Path, int], AbstractContextManager[str]]) -> Iterator[Path]:
    """Directory on a disk that is full after 64 KiB."""
    with small_disk(tmp_path / "small", 64 << 10) as refused:
        if refused:
            pytest.skip(refused)
        yield tmp_path / "small"


def events(project: kedro_project.Project) -> list[Event]:
    return list(read_events(log_file(kedro_project.SCOPE, project.work / "events")))


def prepare_project(project: kedro_project.Project, fault: str, policy: str, target: Path, small: Path | None) -> None:
    project.policy = faults.prepare_case(project.work, fault, policy, project.address, target, small)
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
    variables = dict(RUNNER_VARIABLES.get(runner, {}))
    if fault == "private_killed":
        project.address = ""
        variables |= faults.private_store_variables(socket_folder)
    prepare_project(project, fault, policy, tmp_path / "checkpoints", disk)
    outcome = MATRIX[fault, policy]
    expected = dict(outcome.runs)
    if runner == "spawn":  # its workers inherit nothing, so here only the settings name the policy
        (project.folder / "src/struck/settings.py").write_text(f"ENTREPOT_POLICY = {str(project.policy)!r}\n")
        project.policy = None
    code = project.run(*RUNNERS[runner], **variables)
    if fault.startswith("task_killed") and RUNNERS[runner] != ENTREPOT_RUNNER:
        # The node runs in the process of `kedro run`: nothing is left that could retry, but the values are.
        assert code == -signal.SIGKILL, project.output_text
        if fault == "task_killed_on_last_try":
            assert project.run(*RUNNERS[runner], *RESUME_ARGUMENTS, **variables) == -signal.SIGKILL, project.output_text
            expected["join"] = 3
            faults.stop_killing(project.work)
        code = project.run(*RUNNERS[runner], *RESUME_ARGUMENTS, **variables)
    elif fault == "task_killed_on_last_try":
        assert code > 0, project.output_text
        assert "its process was killed, and it is not retried: gave up after 1 retries" in project.output_text
        faults.stop_killing(project.work)
        expected["join"] = 3
        code = project.run(*RUNNERS[runner], *RESUME_ARGUMENTS, **variables)
    if outcome.reason:
        assert code > 0, project.output_text
        assert outcome.reason in project.output_text
        assert not (project.work / "answer").exists()
        assert work.start_counts(project.work)["report"] == 0
        expected["report"] = 0
        if fault != "exception":
            expected["join"] = 0  # its inputs did not exist
    else:
        assert code == 0, project.output_text
        assert int((project.work / "answer").read_text()) == work.ANSWER
    assert work.start_counts(project.work) == expected, project.output_text
    if fault in ("store_killed", "private_killed"):
        # Logged once by each process that used the lost store: not by each node, nor by each attempt.
        processes = 1 if runner in IN_PROCESS_RUNNERS else 1 + PARALLEL_NODES
        assert 1 <= project.output_text.count("which this process now uses") <= processes, project.output_text
        losses = Counter(re.findall(r"Entrepot: object lost dataset:(\w+):", project.output_text))
        assert set(losses) <= {"left", "right"}
        assert set(losses.values()) == {1}, project.output_text
    kinds = {event.kind for event in events(project)}
    assert set(outcome.events) <= kinds, project.output_text
    # The events are in Kedro's own log.
    for kind in ("reloaded", "rerun_planned", "object_lost", "gave_up"):
        assert (f"Entrepot: {kind.replace('_', ' ')}" in project.output_text) == (kind in kinds), project.output_text


def test_a_broken_process_pool(project: kedro_project.Project, tmp_path: Path) -> None:
    """Kedro's own ParallelRunner ends when a worker is killed; the next run recomputes only what is missing."""
    prepare_project(project, "task_killed", "rerun", tmp_path / "checkpoints", None)
    runner_arguments = ("--runner", "ParallelRunner")
    assert project.run(*runner_arguments) > 0
    assert "BrokenProcessPool" in project.output_text
    assert project.run(*runner_arguments, *RESUME_ARGUMENTS) == 0, project.output_text
    assert int((project.work / "answer").read_text()) == work.ANSWER
    assert work.start_counts(project.work) == faults.with_reruns(join=1), project.output_text


def test_killed_run_and_killed_store(project: kedro_project.Project, tmp_path: Path) -> None:
    """Only checkpoints are left: the next run loads what they contain, and recomputes only the rest."""
    prepare_project(project, "task_killed", "checkpoints", tmp_path / "checkpoints", None)
    assert project.run() == -signal.SIGKILL, project.output_text
    faults.kill_store(project.work, project.address)
    assert project.run(*RESUME_ARGUMENTS) == 0, project.output_text
    assert int((project.work / "answer").read_text()) == work.ANSWER
    # `strike` produces a value without a checkpoint, which `join` reads.
    assert work.start_counts(project.work) == faults.with_reruns(join=1, strike=1), project.output_text
    assert "Continuing in the session of an earlier run" in project.output_text


def test_a_successful_run_is_not_resumed(project: kedro_project.Project, tmp_path: Path) -> None:
    prepare_project(project, "none", "checkpoints", tmp_path / "checkpoints", None)
    assert project.run() == 0, project.output_text
    assert project.run(*RESUME_ARGUMENTS) == 0, project.output_text
    assert work.start_counts(project.work) == faults.with_reruns(**dict.fromkeys(work.TASKS, 1))


def test_an_invalid_policy_fails_at_the_start(project: kedro_project.Project, tmp_path: Path) -> None:
    prepare_project(project, "none", "checkpoints", tmp_path / "checkpoints", None)
    assert project.policy is not None
    # Here the project's settings name the policy.
    text = project.policy.read_text() + "checkpoits: {}\n"
    (project.folder / "conf/base/policy.yaml").write_text(text)
    (project.folder / "src/struck/settings.py").write_text('ENTREPOT_POLICY = "conf/base/policy.yaml"\n')
    project.policy = None
    assert project.run() > 0
    assert f"{project.folder}/conf/base/policy.yaml:{len(text.splitlines())}:1:" in project.output_text
    assert "checkpoits" in project.output_text
    assert work.start_counts(project.work) == dict.fromkeys(work.TASKS, 0)
