"""Plans on random graphs, checked against a model that tries all sets of tasks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from entrepot.ids import ObjectID
from entrepot_policy.recovery.planning import CombinedGraph, PlanningError, RerunNeeded, Survival, plan_reruns
from entrepot_policy.rules.match_target import Task
from entrepot_policy.state.lineage import ObjectRef
from hypothesis import given, settings
from hypothesis import strategies as st


def ref(name: str) -> ObjectRef:
    return ObjectRef("s", ObjectID.derive("x", "s", name), name)


def task(name: str) -> Task:
    return Task("kedro", "p", "r", name)


class Model:
    """Tasks that compute objects from objects.

    Args:
        tasks: (inputs, outputs) by task name.
        places: where each surviving object is; objects not listed are gone.
    """

    def __init__(
        self, tasks: Mapping[str, tuple[Sequence[str], Sequence[str]]], places: Mapping[str, Survival]
    ) -> None:
        self.tasks = tasks
        self.places = places
        self.looked_up: list[str] = []

    def maker(self, reference: ObjectRef) -> Task | None:
        return next((task(name) for name, (_, outputs) in self.tasks.items() if reference.key in outputs), None)

    def inputs(self, consumer: Task, output: ObjectRef) -> Sequence[ObjectRef] | None:
        return [ref(name) for name in self.tasks[consumer.name][0]] if consumer.name in self.tasks else None

    def survival(self, reference: ObjectRef) -> Survival:
        self.looked_up.append(reference.key)
        return self.places.get(reference.key, "gone")

    def is_sufficient(self, chosen: Sequence[str], lost: Sequence[str]) -> bool:
        """Whether running these tasks, in some order, produces everything lost."""
        available = {name for name, place in self.places.items() if place != "gone"} - set(lost)
        left = list(chosen)
        while left:
            ready = [name for name in left if available.issuperset(self.tasks[name][0])]
            if not ready:
                return False
            for name in ready:
                available.update(self.tasks[name][1])
                left.remove(name)
        return available.issuperset(lost)

    def smallest_sufficient(self, lost: Sequence[str]) -> list[set[str]]:
        """All smallest sufficient sets of tasks; empty if none does."""
        for size in range(len(self.tasks) + 1):
            sufficient = [
                set(combination)
                for combination in itertools.combinations(self.tasks, size)
                if self.is_sufficient(combination, lost)
            ]
            if sufficient:
                return sufficient
        return []


@st.composite
def models(draw: st.DrawFn, *, loops: bool) -> tuple[Model, list[str]]:
    count = draw(st.integers(1, 7))
    names: list[str] = ["raw"]
    tasks: dict[str, tuple[list[str], list[str]]] = {}
    every = [f"o{index}" for index in range(2 * count)]
    for index in range(count):
        outputs = every[2 * index : 2 * index + draw(st.integers(1, 2))]
        pool = every if loops else names
        tasks[f"t{index}"] = (draw(st.lists(st.sampled_from(pool), max_size=3, unique=True)), outputs)
        names += outputs
    places: dict[str, Survival] = {
        name: draw(st.sampled_from(["store", "checkpoint", "gone", "gone"])) for name in names if name != "raw"
    }
    places["raw"] = draw(st.sampled_from(["store", "store", "gone"]))
    lost = draw(st.lists(st.sampled_from(names[1:]), min_size=1, max_size=2, unique=True))
    return Model(tasks, places), lost


def check(model: Model, lost: list[str]) -> None:
    smallest = model.smallest_sufficient(lost)
    try:
        plan = plan_reruns([ref(name) for name in lost], model, model.survival, max_tasks=100)
    except PlanningError:
        assert smallest == []
        return
    names = [rerun.task.name for rerun in plan.reruns]
    assert len(set(names)) == len(names)
    assert set(names) in smallest, (names, smallest)
    assert len(model.looked_up) == len(set(model.looked_up)), "an object was looked for twice"
    # In this order each task finds its inputs, and only objects that exist solely in a checkpoint are reloaded.
    available = {name for name, place in model.places.items() if place == "store"} - set(lost)
    available |= {reload.key for reload in plan.reloads}
    assert all(model.places[reload.key] == "checkpoint" for reload in plan.reloads)
    for name in names:
        assert available.issuperset(model.tasks[name][0]), (names, name)
        available.update(model.tasks[name][1])
    assert available.issuperset(lost)


@settings(max_examples=300, deadline=None)
@given(models(loops=False))
def test_plans_are_smallest_and_in_order(example: tuple[Model, list[str]]) -> None:
    check(*example)


@settings(max_examples=300, deadline=None)
@given(models(loops=True))
def test_plans_end_on_any_graph_and_loops_are_refused(example: tuple[Model, list[str]]) -> None:
    check(*example)


def test_a_deep_chain_is_no_recursion() -> None:
    depth = 5000
    tasks = {f"t{i}": ([f"o{i - 1}"] if i else [], [f"o{i}"]) for i in range(depth)}
    model = Model({}, {})
    by_output = {f"o{i}": task(f"t{i}") for i in range(depth)}
    model.maker = lambda reference: by_output.get(reference.key)  # type: ignore[method-assign]
    model.tasks = tasks
    plan = plan_reruns([ref(f"o{depth - 1}")], model, model.survival, max_tasks=depth)
    assert [rerun.task.name for rerun in plan.reruns] == [f"t{i}" for i in range(depth)]
    with pytest.raises(PlanningError, match="more than 4999 tasks"):
        plan_reruns([ref(f"o{depth - 1}")], model, model.survival, max_tasks=depth - 1)


def test_what_stands_in_the_way_is_named() -> None:
    model = Model({"a": (["b1"], ["a1"]), "b": (["a1"], ["b1"]), "c": (["x"], ["c1"])}, {})
    with pytest.raises(PlanningError, match="is cyclic"):
        plan_reruns([ref("a1")], model, model.survival, max_tasks=9)
    with pytest.raises(PlanningError, match=r"'x'.*which p/c reads"):
        plan_reruns([ref("c1")], model, model.survival, max_tasks=9)


def test_what_must_not_run_again_is_in_no_plan() -> None:
    model = Model({"a": ([], ["a1"]), "b": (["a1"], ["b1"])}, {})
    plan = plan_reruns([ref("a1")], model, model.survival, max_tasks=9, refusal=lambda output: "no")
    assert [planned_task.name for planned_task in plan.tasks] == ["a"], "what is asked for was decided on already"
    with pytest.raises(PlanningError, match=r"which p/b reads, is lost, and it costs money"):
        plan_reruns([ref("b1")], model, model.survival, max_tasks=9, refusal=lambda output: "it costs money")


def test_an_orchestrator_knows_what_the_store_forgot() -> None:
    forgot, knows = Model({}, {}), Model({"a": (["raw"], ["a1"])}, {"raw": "store"})
    plan = plan_reruns([ref("a1")], CombinedGraph(forgot, knows, None), knows.survival, max_tasks=9)
    assert [planned_task.name for planned_task in plan.tasks] == ["a"]
    assert "p/a (for 'a1'" in str(RerunNeeded(plan, "x.yaml:3"))
