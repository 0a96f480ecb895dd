"""Kedro's own SequentialRunner as the orchestrator: lineage from its hooks, and reruns of only the nodes needed.

Dataset and hooks are the test's own; they show that the interface works with a real runner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from entrepot import raw_objects
from entrepot_io.keys import kedro_key
from entrepot_io.reference import Reference
from entrepot_io.values import get_value, put_value
from entrepot_policy.recovery.planning import Plan
from entrepot_policy.rules.loader import parse_policy
from entrepot_policy.rules.match_target import Task
from entrepot_policy.runtime import PolicyRuntime, TaskRun
from entrepot_policy.state.events import read_events
from entrepot_policy.state.lineage import ObjectRef

pytestmark = pytest.mark.e2e
RUN = "run-1"


class KedroRun:
    """A Kedro run of a pipeline raw -> clean -> model -> report, and clean -> other."""

    def __init__(self, address: str, text: str) -> None:
        from kedro.framework.hooks import hook_impl
        from kedro.framework.hooks.manager import _create_hook_manager
        from kedro.io import AbstractDataset, DataCatalog, MemoryDataset
        from kedro.pipeline import Pipeline, node

        bench = self
        self.ran: list[str] = []
        self.references: dict[str, Reference] = {}
        self.tasks: list[tuple[str, TaskRun]] = []  # a stack: nested runs on top
        self.before: Callable[[str], None] = lambda name: None

        def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def run(*inputs: Any) -> Any:
                bench.ran.append(name)
                return function(*inputs)

            return run

        self.pipeline = Pipeline(
            [
                node(noted("load", lambda start: np.arange(start)), "start", "raw", name="load"),
                node(noted("clean", lambda raw: raw * 2), "raw", "clean", name="clean"),
                node(noted("train", lambda clean: clean + 1), "clean", "model", name="train"),
                node(noted("other", lambda clean: clean[:3].copy()), "clean", "few", name="other"),
                node(noted("report", lambda model, few: int(model.sum() + few.sum())), ["model", "few"], "report",
                     name="report"),
            ]
        )  # fmt: skip

        class Stored(AbstractDataset[Any, Any]):
            def __init__(self, name: str) -> None:
                self._name = name

            def load(self) -> Any:
                return bench.load(self._name)

            def save(self, data: Any) -> None:
                task, store = bench.tasks[-1][1], bench.runtime.session(RUN)
                bench.references[self._name] = task.write(store, lambda: put_value(store, kedro_key(self._name), data))

            def _describe(self) -> dict[str, Any]:
                return {"name": self._name}

        class Hooks:
            @hook_impl
            def before_dataset_loaded(self, dataset_name: str, node: Any) -> None:
                bench.enter(node.name)
                bench.before(dataset_name)

            @hook_impl
            def after_dataset_saved(self, dataset_name: str, data: Any, node: Any) -> None:
                _, task = bench.tasks.pop()
                task.__exit__(None, None, None)

        names = ("raw", "clean", "model", "few", "report")
        self.catalog = DataCatalog({**{name: Stored(name) for name in names}, "start": MemoryDataset(20_000)})
        self.hooks = _create_hook_manager()
        self.hooks.register(Hooks())
        self.runtime = PolicyRuntime(
            parse_policy(text, "kedro.yaml", {}), scope="tests", address=address, graph=self, rerunner=self
        )

    def enter(self, name: str) -> None:
        if not self.tasks or self.tasks[-1][0] != name:
            self.tasks.append((name, self.runtime.task(Task("kedro", "p", RUN, name)).__enter__()))

    def load(self, name: str) -> Any:
        reference = self.references[name]
        store = self.runtime.session(RUN)
        return self.tasks[-1][1].read(reference, lambda: get_value(reference, address=store.address))

    def run(self, pipeline: Any = None) -> None:
        from kedro.runner import SequentialRunner

        SequentialRunner().run(pipeline or self.pipeline, self.catalog, self.hooks, RUN)

    def lose(self, *names: str) -> None:
        for name in names:
            raw_objects.discard(self.runtime.session(RUN), self.references[name].id)

    def maker(self, ref: ObjectRef, /) -> Task | None:
        return None

    def inputs(self, task: Task, output: ObjectRef, /) -> Sequence[ObjectRef] | None:
        return None

    def rerun(self, plan: Plan, /) -> None:
        self.run(self.pipeline.only_nodes(*(task.name for task in plan.tasks)))


@pytest.fixture
def bench(daemon: Any, root: str) -> KedroRun:
    text = (
        f"version: 1\ncheckpoint: {{target: '{root}/{{run}}', rules: [{{match: load}}]}}\n"
        "failover: [{on: object_lost, do: [reload_checkpoint, rerun_upstream]}]\n"
    )
    return KedroRun(daemon.address, text)


def test_the_runner_reruns_what_is_needed_while_it_runs(bench: KedroRun) -> None:
    """Three values are lost in mid-run, as the last node begins; one of them has a checkpoint."""
    lost: list[str] = []

    def lose(name: str) -> None:
        if name == "model" and not lost:
            lost.extend(["raw", "clean", "model"])
            bench.lose(*lost)

    bench.before = lose
    bench.run()
    expected = np.arange(20_000) * 2
    assert sorted(bench.ran[1:4]) == ["clean", "other", "train"]
    assert bench.ran[4:] == ["clean", "train", "report"], "what was lost, and no more; raw came from its checkpoint"
    store = bench.runtime.session(RUN)
    assert store.get(bench.references["report"].id) == int((expected + 1).sum() + expected[:3].sum())
    kinds = [event.kind for event in read_events(bench.runtime.log.path)]
    assert kinds == ["checkpoint_written", "object_lost", "reloaded", "rerun_planned", "rerun_done", "recovered"]
    assert bench.runtime.plan([ObjectRef.of(bench.references["model"])]).tasks == ()
