"""Plans on random graphs, checked against a model that tries all sets of tasks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from entrepot.ids import ObjectID
from entrepot_io.policy.lineage import ObjectRef
from entrepot_io.policy.planning import Graphs, NoPlan, RerunNeeded, Survival, plan_reruns
from entrepot_io.policy.subject import Task
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
        self.asked: list[str] = []

    def maker(self, one: ObjectRef) -> Task | None:
        return next((task(name) for name, (_, outputs) in self.tasks.items() if one.key in outputs), None)

    def inputs(self, one: Task, output: ObjectRef) -> Sequence[ObjectRef] | None:
        return [ref(name) for name in self.tasks[one.name][0]] if one.name in self.tasks else None

    def survival(self, one: ObjectRef) -> Survival:
        self.asked.append(one.key)
        return self.places.get(one.key, "gone")

    def works(self, chosen: Sequence[str], wanted: Sequence[str]) -> bool:
        """Whether running these tasks, in some order, produces everything wanted."""
        there = {name for name, place in self.places.items() if place != "gone"} - set(wanted)
        left = list(chosen)
        while left:
            ready = [name for name in left if there.issuperset(self.tasks[name][0])]
            if not ready:
                return False
            for name in ready:
                there.update(self.tasks[name][1])
                left.remove(name)
        return there.issuperset(wanted)

    def smallest(self, wanted: Sequence[str]) -> list[set[str]]:
        """All smallest sets of tasks that work; empty if none does."""
        for size in range(len(self.tasks) + 1):
            found = [set(one) for one in itertools.combinations(self.tasks, size) if self.works(one, wanted)]
            if found:
                return found
        return []


@st.composite
def models(draw: st.DrawFn, *, loops: bool) -> tuple[Model, list[str]]:
    count = draw(st.integers(1, 7))
    made: list[str] = ["raw"]
    tasks: dict[str, tuple[list[str], list[str]]] = {}
    every = [f"o{index}" for index in range(2 * count)]
    for index in range(count):
        outputs = every[2 * index : 2 * index + draw(st.integers(1, 2))]
        pool = every if loops else made
        tasks[f"t{index}"] = (draw(st.lists(st.sampled_from(pool), max_size=3, unique=True)), outputs)
        made += outputs
    places: dict[str, Survival] = {
        name: draw(st.sampled_from(["store", "checkpoint", "gone", "gone"])) for name in made if name != "raw"
    }
    places["raw"] = draw(st.sampled_from(["store", "store", "gone"]))
    lost = draw(st.lists(st.sampled_from(made[1:]), min_size=1, max_size=2, unique=True))
    return Model(tasks, places), lost


def check(model: Model, lost: list[str]) -> None:
    smallest = model.smallest(lost)
    try:
        plan = plan_reruns([ref(name) for name in lost], model, model.survival, max_tasks=100)
    except NoPlan:
        assert smallest == []
        return
    names = [one.task.name for one in plan.reruns]
    assert len(set(names)) == len(names)
    assert set(names) in smallest, (names, smallest)
    assert len(model.asked) == len(set(model.asked)), "an object was looked for twice"
    # In this order each task finds its inputs, and only objects that exist solely in a checkpoint are reloaded.
    there = {name for name, place in model.places.items() if place == "store"} - set(lost)
    there |= {one.key for one in plan.reloads}
    assert all(model.places[one.key] == "checkpoint" for one in plan.reloads)
    for name in names:
        assert there.issuperset(model.tasks[name][0]), (names, name)
        there.update(model.tasks[name][1])
    assert there.issuperset(lost)


@settings(max_examples=300, deadline=None)
@given(models(loops=False))
def test_plans_are_smallest_and_in_order(made: tuple[Model, list[str]]) -> None:
    check(*made)


@settings(max_examples=300, deadline=None)
@given(models(loops=True))
def test_plans_end_on_any_graph_and_loops_are_refused(made: tuple[Model, list[str]]) -> None:
    check(*made)


def test_a_deep_chain_is_no_recursion() -> None:
    depth = 5000
    tasks = {f"t{i}": ([f"o{i - 1}"] if i else [], [f"o{i}"]) for i in range(depth)}
    model = Model({}, {})
    by_output = {f"o{i}": task(f"t{i}") for i in range(depth)}
    model.maker = lambda one: by_output.get(one.key)  # type: ignore[method-assign]
    model.tasks = tasks
    plan = plan_reruns([ref(f"o{depth - 1}")], model, model.survival, max_tasks=depth)
    assert [one.task.name for one in plan.reruns] == [f"t{i}" for i in range(depth)]
    with pytest.raises(NoPlan, match="more than 4999 tasks"):
        plan_reruns([ref(f"o{depth - 1}")], model, model.survival, max_tasks=depth - 1)


def test_what_stands_in_the_way_is_named() -> None:
    model = Model({"a": (["b1"], ["a1"]), "b": (["a1"], ["b1"]), "c": (["x"], ["c1"])}, {})
    with pytest.raises(NoPlan, match="goes in a circle"):
        plan_reruns([ref("a1")], model, model.survival, max_tasks=9)
    with pytest.raises(NoPlan, match=r"'x'.*which p/c reads"):
        plan_reruns([ref("c1")], model, model.survival, max_tasks=9)


def test_what_must_not_run_again_is_in_no_plan() -> None:
    model = Model({"a": ([], ["a1"]), "b": (["a1"], ["b1"])}, {})
    plan = plan_reruns([ref("a1")], model, model.survival, max_tasks=9, forbidden=lambda one: "no")
    assert [one.name for one in plan.tasks] == ["a"], "what is asked for was decided on already"
    with pytest.raises(NoPlan, match=r"which p/b reads, is gone, and it costs money"):
        plan_reruns([ref("b1")], model, model.survival, max_tasks=9, forbidden=lambda one: "it costs money")


def test_a_host_knows_what_the_store_forgot() -> None:
    forgot, knows = Model({}, {}), Model({"a": (["raw"], ["a1"])}, {"raw": "store"})
    plan = plan_reruns([ref("a1")], Graphs(forgot, knows, None), knows.survival, max_tasks=9)
    assert [one.name for one in plan.tasks] == ["a"]
    assert "p/a (for 'a1'" in str(RerunNeeded(plan, "x.yaml:3"))
