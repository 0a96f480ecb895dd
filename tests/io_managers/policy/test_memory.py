"""``memory: {recompute: auto}``: what may and may not be dropped, and how dropped values are recomputed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import ObjectID, raw_objects
from entrepot.errors import ObjectDropped, StoreFull
from entrepot_io.values import put_value
from entrepot_policy.explanation import explain
from entrepot_policy.recovery.planning import RerunNeeded
from entrepot_policy.recovery.recompute_cost import MAX_OBJECTS, NotRecomputable, estimate_recompute_cost
from entrepot_policy.rules.loader import parse_policy
from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.schema.diagnostics import PolicyError
from entrepot_policy.state import lineage
from entrepot_policy.state.events import Event, read_events
from entrepot_policy.state.lineage import MAX_INPUTS, Lineage, ObjectRef

AUTO = "version: 1\nmemory: {recompute: auto}\n"
MIB = 1 << 20
WATCHDOG_SECONDS = 30.0
TASK = Task("kedro", "pipeline", "run-1", "task")


def problems(text: str) -> list[tuple[int, str]]:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "p.yaml", {})
    return [(problem.location.line, problem.text) for problem in caught.value.problems]


def subject(name: str, **attributes: Any) -> Subject:
    return Subject(Task("kedro", "p", "r", name), **attributes)


# --- the policy file


def test_the_first_rule_that_matches_decides_and_the_default_is_never() -> None:
    policy = parse_policy(
        """\
version: 1
memory:
  overhead: 2s
  rules:
    - {match: "sample_*", recompute: never}
    - {match: {tag: deterministic}, recompute: auto}
""",
        "p.yaml",
        {},
    )
    assert policy.overhead == 2

    def decides(candidate: Subject) -> tuple[bool, int]:
        rule = policy.memory_rule(candidate)
        assert rule is not None
        return rule.recompute, rule.location.line

    assert decides(subject("sample_rows", tags=frozenset({"deterministic"}))) == (False, 5)
    assert decides(subject("join", tags=frozenset({"deterministic"}))) == (True, 6)
    assert not decides(subject("join"))[0]
    assert parse_policy("version: 1\n", "p.yaml", {}).memory_rule(subject("join")) is None
    everywhere = parse_policy(AUTO, "p.yaml", {}).memory_rule(subject("join"))
    assert everywhere is not None
    assert everywhere.recompute
    switched = parse_policy("version: 1\n", "p.yaml", {"ENTREPOT_POLICY__MEMORY__RECOMPUTE": "auto"})
    assert switched.memory[-1].recompute


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("version: 1\nmemory: {recompute: always}\n", 2, "one of auto, never"),
        ("version: 1\nmemory: {rules: [{match: a}]}\n", 2, "requires 'recompute'"),
        ("version: 1\nmemory: {recompute: auto, spill: never}\n", 2, "no key 'spill'"),
        (
            "version: 1\nmemory:\n  rules:\n"
            "    - {match: 'a*', recompute: never}\n    - {match: ab, recompute: auto}\n",
            5,
            "this rule never applies",
        ),
        (
            "version: 1\nmemory:\n  recompute: auto\n  rules:\n    - {match: '*', recompute: never}\n",
            3,
            "this rule never applies",
        ),
        (
            "version: 1\nmemory: {rules: [{match: {size: ['>2', '<1']}, recompute: auto}]}\n",
            2,
            "no number satisfies",
        ),
        ("version: 1\nmemory: {overhead: 1s}\n", 2, "'overhead' has no effect"),
        (
            "version: 1\nmemory:\n  recompute: auto\nfailover:\n  - {on: object_dropped, do: fail}\n",
            3,
            "the rule at p.yaml:5",
        ),
        (
            "version: 1\nmemory:\n  rules:\n    - {match: a, recompute: auto}\n"
            "failover:\n  - {on: object_dropped, match: 'a*', do: retry}\n",
            4,
            "add the step rerun_upstream to that rule",
        ),
    ],
)
def test_contradictions_are_reported_with_their_line(text: str, line: int, message: str) -> None:
    reported = problems(text)
    assert any(at == line and message in words for at, words in reported), reported


def test_rules_that_only_concern_others_contradict_nothing() -> None:
    policy = parse_policy(
        "version: 1\nmemory:\n  rules:\n    - {match: a, recompute: auto}\n"
        "failover:\n  - {on: object_dropped, match: b, do: fail}\n  - {on: object_lost, do: fail}\n",
        "p.yaml",
        {},
    )
    assert policy.failover_rule("object_dropped", subject("a")) is None
    for event, task_name, number in (("object_dropped", "b", 0), ("object_lost", "a", 1)):
        assert policy.failover_rule(event, subject(task_name)) is policy.failover[number]


def test_it_is_explained() -> None:
    lines = "\n".join(explain(parse_policy(AUTO, "p.yaml", {}), subject("join")))
    assert "memory: dropped when memory is short, if recomputing it is expected to cost less" in lines
    assert "[p.yaml:2, matches everything]" in lines
    assert "on object_dropped: reload_checkpoint, then reread_durable, then rerun_upstream" in lines
    assert "memory: never dropped" in "\n".join(explain(parse_policy("version: 1\n", "p.yaml", {}), subject("join")))


# --- what the store is told


def chain() -> dict[str, tuple[Any, ...]]:
    """raw -> clean -> model, 160 kB each."""
    return {
        "raw": (lambda: np.arange(20_000),),
        "clean": (lambda raw: raw * 2, "raw"),
        "model": (lambda clean: clean + 1, "clean"),
    }


def recompute_seconds(orchestrator: Any, name: str) -> float | None:
    seconds: float | None = orchestrator.store().info(orchestrator.references[name].id).recompute_seconds
    return seconds


def events(orchestrator: Any, kind: str) -> list[Event]:
    return [event for event in read_events(orchestrator.runtime.log.path) if event.kind == kind]


def test_recompute_seconds_include_all_upstream_tasks(new_orchestrator: Callable[..., Any]) -> None:
    def slow() -> Any:
        time.sleep(0.05)
        return np.arange(20_000)

    nodes = chain()
    nodes["raw"] = (slow,)
    nodes["small"] = (lambda clean: clean[:10].copy(), "clean")
    orchestrator = new_orchestrator(AUTO, nodes)
    orchestrator.run()
    raw, clean, model = (recompute_seconds(orchestrator, name) for name in ("raw", "clean", "model"))
    assert raw is not None
    assert clean is not None
    assert model is not None
    assert 0.05 <= raw < clean < model, "each with all that is before it"
    assert recompute_seconds(orchestrator, "small") is None, "it is part of a record, and never leaves memory"
    droppable = events(orchestrator, "droppable")
    assert [event.task for event in droppable] == ["raw", "clean", "model"]
    assert "at most 3 tasks" in droppable[-1].text
    assert droppable[-1].rule == "test.yaml:2"


def test_an_orchestrator_that_starts_processes_takes_longer(new_orchestrator: Callable[..., Any]) -> None:
    orchestrator = new_orchestrator(AUTO, chain(), reruns=False)
    orchestrator.run()
    assert (
        10 <= (recompute_seconds(orchestrator, "raw") or 0) < 20 <= (recompute_seconds(orchestrator, "clean") or 0) < 30
    )
    other = new_orchestrator("version: 1\nmemory: {recompute: auto, overhead: 1h}\n", chain())
    other.run()
    assert (recompute_seconds(other, "clean") or 0) == pytest.approx(7200, rel=1e-3)


@pytest.mark.parametrize(
    ("rest", "names", "why"),
    [
        ("failover: [{on: object_lost, match: raw, do: fail}]", ["clean", "model"], "must not be rerun"),
        ("failover: [{on: object_dropped, match: model, do: fail}]", ["model"], "has no step rerun_upstream"),
        ("failover: [{on: object_dropped, do: rerun_upstream, max_tasks: 2}]", ["model"], "more than 2 tasks"),
        (
            "checkpoint: {target: '{root}/{{run}}', rules: [{match: clean, mode: async}]}",
            ["clean"],
            "asynchronous checkpoint",
        ),
    ],
)
def test_what_is_not_sure_to_come_back_is_not_allowed(
    new_orchestrator: Callable[..., Any], root: str, rest: str, names: list[str], why: str
) -> None:
    orchestrator = new_orchestrator(AUTO + rest.replace("{root}", root).replace("{{run}}", "{run}") + "\n", chain())
    orchestrator.run()
    refused = events(orchestrator, "not_droppable")
    assert [event.task for event in refused] == names
    assert all(why in event.text for event in refused)
    assert [recompute_seconds(orchestrator, name) is None for name in ("raw", "clean", "model")] == [
        name in names for name in ("raw", "clean", "model")
    ]
    orchestrator.runtime.run_ended(orchestrator.store())


def test_without_a_rule_nothing_is_declared_droppable(new_orchestrator: Callable[..., Any]) -> None:
    orchestrator = new_orchestrator("version: 1\nmemory: {rules: [{match: clean, recompute: auto}]}\n", chain())
    orchestrator.run()
    assert [recompute_seconds(orchestrator, name) is None for name in ("raw", "clean", "model")] == [True, False, True]
    assert [event.task for event in events(orchestrator, "droppable")] == ["clean"]


def test_a_value_from_elsewhere_stands_in_the_way(new_orchestrator: Callable[..., Any]) -> None:
    """A value without lineage cannot be recomputed: once it is deleted, values computed from it could not be either."""
    orchestrator = new_orchestrator(AUTO, chain())
    orchestrator.references["raw"] = put_value(orchestrator.store(), "node:raw", np.arange(20_000))
    orchestrator.run(["clean", "model"])
    assert recompute_seconds(orchestrator, "clean") is None
    assert recompute_seconds(orchestrator, "model") is None
    assert all("on which it depends, is not known" in event.text for event in events(orchestrator, "not_droppable"))


def ref(number: int, session: str = "run-1") -> ObjectRef:
    store_id = ObjectID.derive("tests", session, str(number))
    return ObjectRef(session, store_id, str(number))


def test_limits_of_the_lineage_search(store: Any) -> None:
    def own(**changes: Any) -> Lineage:
        return Lineage(ref(0), TASK, (), True, 1.0, 0.0, **changes)

    def refusal(output_lineage: Lineage) -> str:
        with pytest.raises(NotRecomputable) as caught:
            estimate_recompute_cost(store, output_lineage, lambda subject: "", overhead=0.0, max_tasks=1000)
        return str(caught.value)

    assert estimate_recompute_cost(store, own(), lambda subject: "", overhead=0.5, max_tasks=1).seconds == 1.5
    assert f"more than {MAX_INPUTS} inputs" in refusal(replace(own(), complete=False))
    for number in range(1, MAX_OBJECTS + 3):
        link = Lineage(ref(number), replace(TASK, name=str(number)), (ref(number + 1),), True, 1.0, 0.0)
        lineage.write(store, link)
    assert f"more than {MAX_OBJECTS} values" in refusal(replace(own(), inputs=(ref(1),)))
    other = replace(TASK, run="run-0", name="other")
    lineage.write(store, Lineage(ref(1), other, (), True, 1.0, 0.0))
    assert "belongs to another run" in refusal(replace(own(), inputs=(ref(1),)))
    # A cycle must not loop forever; reporting it is up to the planner.
    in_cycle = replace(own(), inputs=(ref(1),))
    lineage.write(store, Lineage(ref(1), replace(TASK, name="1"), (ref(0),), True, 1.0, 0.0))
    lineage.write(store, in_cycle)
    visited: list[str] = []

    def visit(ancestor: Subject) -> str:
        visited.append(ancestor.task.name)
        return "visited too often" if len(visited) > 2 else ""

    assert estimate_recompute_cost(store, in_cycle, visit, overhead=0.0, max_tasks=9).tasks == 2
    assert visited == ["1", TASK.name]


# --- dropped and recomputed


def create_memory_pressure(orchestrator: Any, drops: int) -> None:
    """Create memory pressure until ``drops`` values have been dropped, then release that memory."""
    with entrepot.connect(orchestrator.store().address, scope="press") as store:
        blocks = []
        end = time.monotonic() + WATCHDOG_SECONDS
        while store.status()["drops"] < drops:
            assert time.monotonic() < end, "nothing is dropped"
            with suppress(StoreFull):  # memory is not provisioned yet, or was freed in fragments
                blocks.append(store._raw().create(4 * MIB, 0.2))  # pyright: ignore[reportPrivateUsage]


def test_what_was_dropped_is_made_again_and_nothing_else(new_orchestrator: Callable[..., Any]) -> None:
    orchestrator = new_orchestrator(
        "version: 1\nmemory: {rules: [{match: {task: [clean, model]}, recompute: auto}]}\n", chain()
    )
    orchestrator.run()
    create_memory_pressure(orchestrator, 2)
    assert orchestrator.store().status()["dropped"] == 2
    with pytest.raises(ObjectDropped):
        orchestrator.store().get(orchestrator.references["model"].id)
    orchestrator.ran.clear()
    assert (orchestrator.value("model") == np.arange(20_000) * 2 + 1).all()
    assert orchestrator.ran == ["clean", "model"], "raw survived"
    kinds = [event.kind for event in read_events(orchestrator.runtime.log.path)]
    assert "object_dropped" in kinds
    assert "object_lost" not in kinds
    assert kinds[-1] == "recovered"
    # A recomputed value stays: two values that do not fit together would otherwise be recomputed in turn forever.
    assert all(orchestrator.store().info(orchestrator.references[name].id).made_again for name in ("clean", "model"))


def test_an_ancestor_that_was_deleted_meanwhile_is_made_again_too(new_orchestrator: Callable[..., Any]) -> None:
    orchestrator = new_orchestrator("version: 1\nmemory: {rules: [{match: model, recompute: auto}]}\n", chain())
    orchestrator.run()
    raw_objects.discard(orchestrator.store(), orchestrator.references["raw"].id)
    raw_objects.discard(orchestrator.store(), orchestrator.references["clean"].id)
    create_memory_pressure(orchestrator, 1)
    orchestrator.ran.clear()
    assert (orchestrator.value("model") == np.arange(20_000) * 2 + 1).all()
    assert orchestrator.ran == ["raw", "clean", "model"]


def test_a_checkpoint_saves_the_rerun(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(
        AUTO + f"checkpoint: {{target: '{root}/{{run}}', rules: [{{match: model}}]}}\n", chain()
    )
    orchestrator.run()
    create_memory_pressure(orchestrator, 3)
    orchestrator.ran.clear()
    assert (orchestrator.value("model") == np.arange(20_000) * 2 + 1).all()
    assert orchestrator.ran == []
    assert events(orchestrator, "reloaded")


def test_an_orchestrator_that_cannot_rerun_gets_the_plan(new_orchestrator: Callable[..., Any]) -> None:
    orchestrator = new_orchestrator(AUTO, chain(), reruns=False)
    orchestrator.run()
    create_memory_pressure(orchestrator, 3)
    with pytest.raises(RerunNeeded) as caught:
        orchestrator.value("model")
    assert [task.name for task in caught.value.plan.tasks] == ["raw", "clean", "model"]
