"""Orchestrators that run each task in its own process: one process takes care of what another left behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_policy import PolicyRuntime
from entrepot_policy.recovery.rerun_api import record_rerun
from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.state.events import Event
from entrepot_policy.state.lineage import ObjectRef


def node(value: int = 0) -> dict[str, tuple[Any, ...]]:
    return {"one": (lambda: np.arange(20_000) + value,)}


def test_one_rerun_serves_all_readers_of_one_loss(store: entrepot.Store) -> None:
    ref = ObjectRef("run-1", store.derive("x"), "x", "a" * 32, 7)
    assert [record_rerun(store, ref, 2, shared=True) for _ in range(5)] == [0, 0, 0, 0, 0]
    assert record_rerun(store, replace(ref, generation=8), 2, shared=True) == 0
    assert record_rerun(store, replace(ref, generation=9), 2, shared=True) == 2, "lost for the third time"


def test_without_sharing_each_reader_counts(store: entrepot.Store) -> None:
    ref = ObjectRef("run-1", store.derive("x"), "x", "a" * 32, 7)
    assert [record_rerun(store, ref, 2) for _ in range(4)] == [0, 0, 2, 2]


def test_another_process_sweeps_what_was_pruned(new_orchestrator: Callable[..., Any], root: str) -> None:
    text = f"version: 1\ncheckpoint: {{target: '{root}/{{run}}', rules: [{{match: one, keep: 1}}]}}\n"
    address = ""
    for value in range(3):
        orchestrator = new_orchestrator(text, node(value))
        address = orchestrator.store().address
        orchestrator.run()
    chunks = len(list(Path(root).glob("run-1/.entrepot/chunks/*/*")))
    other: PolicyRuntime = new_orchestrator(text, node(), address=address).runtime
    report = other.run_ended(other.session("run-1"))
    assert report.swept == 2
    assert len(list(Path(root).glob("run-1/.entrepot/chunks/*/*"))) == chunks - 2
    assert other.run_ended(other.session("run-1")).swept == 0, "the note is gone"


def test_a_process_waits_for_its_own_async_checkpoints(new_orchestrator: Callable[..., Any], root: str) -> None:
    text = f"version: 1\ncheckpoint: {{target: '{root}/{{run}}', rules: [{{match: one, mode: async}}]}}\n"
    orchestrator = new_orchestrator(text, node())
    events: list[Event] = []
    orchestrator.runtime.log.watch(events.append)
    orchestrator.run()
    assert orchestrator.runtime.checkpoints.flush()
    assert [event.kind for event in events if event.pid == os.getpid()] == ["checkpoint_written"]
    assert orchestrator.runtime.run_ended(orchestrator.store()).written == 0


@pytest.mark.parametrize(
    ("name", "covered"),
    [("train", True), ("train[3]", True), ("trainer", False), ("trainer[3]", False), ("f([a]) -> [b]", False)],
)
def test_a_rule_for_a_task_covers_its_mapped_instances(name: str, covered: bool) -> None:
    from entrepot_policy import parse_policy

    policy = parse_policy("version: 1\nfailover: [{on: task_failed, match: train, do: [fail]}]\n")
    rule = policy.failover_rule("task_failed", Subject(Task("airflow", "p", "r", name)))
    assert (rule is not None) is covered
