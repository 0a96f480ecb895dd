"""Real losses of values, and how the policy handles them, in an orchestrator that reruns its own nodes."""

from __future__ import annotations

import gc
import json
import pickle
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import raw_objects
from entrepot.errors import ObjectLost, ObjectNotFound, StoreFull, StoreUnavailable
from entrepot_io import connections
from entrepot_io.values import get_by_key, get_value, put_value
from entrepot_policy.recovery.failover import MAX_RERUN_DEPTH
from entrepot_policy.recovery.planning import RerunNeeded
from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.state.events import read_events
from entrepot_policy.state.lineage import ObjectRef

RERUN = "failover: [{on: [object_lost, instance_lost], do: [reload_checkpoint, rerun_upstream]}]"


def policy(root: str, rules: str, rest: str = "") -> str:
    return f"version: 1\ncheckpoint:\n  target: {root}/{{run}}\n  rules: {rules}\n{rest}\n"


def chain(ran: list[str] | None = None) -> dict[str, tuple[Any, ...]]:
    """raw -> clean -> model, and raw -> other; 160 kB each (except other), so that values are in segments and have
    chunks."""
    return {
        "raw": (lambda: np.arange(20_000),),
        "clean": (lambda raw: raw * 2, "raw"),
        "model": (lambda clean: clean + 1, "clean"),
        "other": (lambda raw: raw[:10].copy(), "raw"),
    }


BIG = Task("kedro", "pipeline", "run-1", "big")
EXPECTED = {"raw": np.arange(20_000), "clean": np.arange(20_000) * 2, "model": np.arange(20_000) * 2 + 1}


def lose(orchestrator: Any, *names: str) -> None:
    for name in names:
        raw_objects.discard(orchestrator.store(), orchestrator.references[name].id)


def kinds(orchestrator: Any) -> list[str]:
    return [event.kind for event in read_events(orchestrator.runtime.log.path)]


def test_a_lost_value_comes_back_from_its_checkpoint(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: clean}]"), chain())
    orchestrator.run()
    lose(orchestrator, "clean")
    assert (orchestrator.value("clean") == EXPECTED["clean"]).all()
    assert orchestrator.ran == ["raw", "clean", "model", "other"], "nothing ran again"
    expected = kinds(orchestrator)
    assert expected == ["checkpoint_written", "object_lost", "reloaded", "recovered"]
    # The old reference resolves to the new generation of the same value: nothing is done twice.
    assert (orchestrator.value("clean") == EXPECTED["clean"]).all()
    assert kinds(orchestrator) == expected
    lose(orchestrator, "clean")
    assert (orchestrator.value("clean") == EXPECTED["clean"]).all()
    event = next(each for each in read_events(orchestrator.runtime.log.path) if each.kind == "reloaded")
    assert event.rule.startswith("default")
    assert event.seconds is not None
    assert event.task == "clean"


def test_only_what_is_needed_runs_again(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: raw}]", RERUN), chain())
    orchestrator.run()
    lose(orchestrator, "raw", "clean", "model")
    orchestrator.ran.clear()
    assert (orchestrator.value("model") == EXPECTED["model"]).all()
    assert orchestrator.ran == ["clean", "model"], "raw came from its checkpoint"
    lose(orchestrator, "other")
    orchestrator.ran.clear()
    assert list(orchestrator.value("other")) == list(range(10))
    assert orchestrator.ran == ["other"]
    assert "test.yaml:5" in next(e.rule for e in read_events(orchestrator.runtime.log.path) if e.kind == "rerun_done")


def test_an_orchestrator_that_cannot_rerun_gets_the_plan(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: nothing}]", RERUN), chain(), reruns=False)
    orchestrator.run()
    lose(orchestrator, "clean", "model")
    with pytest.raises(RerunNeeded) as caught:
        orchestrator.value("model")
    assert [task.name for task in caught.value.plan.tasks] == ["clean", "model"]
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.plan == caught.value.plan
    assert isinstance(caught.value, ObjectLost), "an orchestrator that knows nothing of plans sees a lost object"


def test_reruns_do_not_go_round_for_ever(new_orchestrator: Callable[..., Any], root: str) -> None:
    """Simulates an orchestrator that reruns in other processes, and loses the value each time before it is read."""
    rest = RERUN[:-2] + ", max_attempts: 2}]"
    orchestrator = new_orchestrator(policy(root, "[{match: nothing}]", rest), chain(), reruns=False)
    orchestrator.run()
    for _ in range(2):
        lose(orchestrator, "clean")
        with pytest.raises(RerunNeeded):
            orchestrator.value("clean")
        orchestrator.run(["clean"])
    lose(orchestrator, "clean")
    with pytest.raises(ObjectLost, match="recomputed 2 times within a day") as caught:
        orchestrator.value("clean")
    assert not isinstance(caught.value, RerunNeeded)


def test_reruns_within_reruns_have_a_limit(
    new_orchestrator: Callable[..., Any], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that is to make a value reads that value first, so each rerun needs another one."""
    orchestrator = new_orchestrator(policy(root, "[{match: nothing}]", RERUN[:-2] + ", max_attempts: 30}]"), chain())
    orchestrator.run()
    lose(orchestrator, "clean")
    begun: list[Any] = []

    def rerun(plan: Any) -> None:
        begun.append(plan)
        orchestrator.value("clean")

    monkeypatch.setattr(orchestrator, "rerun", rerun)
    with pytest.raises(ObjectLost, match=f"reruns are nested {MAX_RERUN_DEPTH} deep"):
        orchestrator.value("clean")
    assert len(begun) == MAX_RERUN_DEPTH


def test_a_damaged_checkpoint_is_no_value(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: clean}]", RERUN), chain())
    orchestrator.run()
    for chunk in Path(root).glob("run-1/.entrepot/chunks/*/*"):
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 1
        chunk.write_bytes(data)
    lose(orchestrator, "clean")
    orchestrator.ran.clear()
    assert (orchestrator.value("clean") == EXPECTED["clean"]).all()
    assert orchestrator.ran == ["clean"]
    assert "checkpoint_damaged" in kinds(orchestrator)


def test_a_damaged_input_of_a_rerun_is_planned_for(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: clean}]", RERUN), chain())
    orchestrator.run()
    for chunk in Path(root).glob("run-1/.entrepot/chunks/*/*"):
        # The length is unchanged, so the damage is noticed only on loading.
        chunk.write_bytes(bytes(chunk.stat().st_size))
    lose(orchestrator, "clean", "model")
    orchestrator.ran.clear()
    assert (orchestrator.value("model") == EXPECTED["model"]).all()
    assert orchestrator.ran == ["clean", "model"]


def test_a_checkpoint_of_another_scope_is_no_value(new_orchestrator: Callable[..., Any], root: str) -> None:
    """Two deployments may share a target, and an ID."""
    rest = "failover: [{on: object_lost, do: reload_checkpoint}]"
    orchestrator = new_orchestrator(policy(root, "[{match: clean}]", rest), chain())
    orchestrator.run()
    (file,) = Path(root).glob(".entrepot/catalog/objects/*/*/*.json")
    entry = json.loads(file.read_text())
    file.write_text(json.dumps(entry | {"scope": "another"}))
    lose(orchestrator, "clean")
    with pytest.raises(ObjectLost, match="only other generations are checkpointed"):
        orchestrator.value("clean")
    file.write_text(json.dumps(entry))
    assert (orchestrator.value("clean") == EXPECTED["clean"]).all()


def test_a_checkpoint_that_holds_another_generation_is_no_value(
    new_orchestrator: Callable[..., Any], root: str
) -> None:
    """The catalog names the checkpoint of an earlier attempt, whose value differs."""
    rest = "failover: [{on: object_lost, do: reload_checkpoint}]"
    orchestrator = new_orchestrator(policy(root, "[{match: clean}]", rest), chain())
    orchestrator.run()
    orchestrator.nodes = {
        **orchestrator.nodes,
        "clean": type(orchestrator.nodes["clean"])(lambda raw: raw * 3, ("raw",)),
    }
    orchestrator.run_node("clean")
    earlier, later = sorted(Path(root).glob(".entrepot/catalog/objects/*/*/*.json"), key=lambda file: file.name)
    entry = json.loads(later.read_text())
    later.write_text(json.dumps(entry | {"url": json.loads(earlier.read_text())["url"]}))
    lose(orchestrator, "clean")
    with pytest.raises(ObjectLost, match="holds a different generation of object"):
        orchestrator.value("clean")
    assert "checkpoint_damaged" in kinds(orchestrator)
    later.write_text(json.dumps(entry))
    assert (orchestrator.value("clean") == np.arange(20_000) * 3).all()


def test_the_policy_may_have_a_damaged_checkpoint_fail(new_orchestrator: Callable[..., Any], root: str) -> None:
    rest = RERUN[:-1] + ", {on: checkpoint_damaged, do: [{fail: {reason: call Ada}}]}]"
    orchestrator = new_orchestrator(policy(root, "[{match: clean}]", rest), chain())
    orchestrator.run()
    shutil.rmtree(f"{root}/run-1/.entrepot/chunks")
    lose(orchestrator, "clean")
    with pytest.raises(ObjectLost, match=r"call Ada.*policy test.yaml:5 on object_lost"):
        orchestrator.value("clean")
    assert orchestrator.ran == ["raw", "clean", "model", "other"]
    assert kinds(orchestrator)[-1] == "gave_up"


def test_what_was_never_written_is_not_lost(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: clean}]", RERUN), chain())
    store = orchestrator.store()

    def read(name: str, expected: bool) -> Any:
        ref = ObjectRef("run-1", store.derive(f"node:{name}"), f"node:{name}")
        return orchestrator.runtime.read(ref, lambda: get_by_key(store, f"node:{name}"), expected=expected)

    with pytest.raises(ObjectNotFound):
        read("clean", expected=False)
    assert orchestrator.ran == []
    orchestrator.run()
    lose(orchestrator, "clean", "other")
    orchestrator.ran.clear()
    assert (read("clean", expected=False) == EXPECTED["clean"]).all(), "a checkpoint knows of it"
    assert orchestrator.ran == []
    assert list(read("other", expected=False)) == list(range(10)), "lineage knows of it"
    assert orchestrator.ran == ["other"]


def test_giving_up_says_what_was_tried(new_orchestrator: Callable[..., Any], root: str) -> None:
    rest = "failover: [{on: object_lost, do: [reload_checkpoint, reread_durable, {retry: {attempts: 2}}]}]"
    orchestrator = new_orchestrator(policy(root, "[{match: nothing}]", rest), chain())
    orchestrator.run()
    lose(orchestrator, "clean")
    with pytest.raises(
        ObjectLost, match=r"no checkpoint found; reread_durable: the session is not durable; retry 1: .*retry 2"
    ):
        orchestrator.value("clean")


def test_an_exception_of_a_rerun_is_the_cause(new_orchestrator: Callable[..., Any], root: str) -> None:
    fails = [False]

    def clean(raw: Any) -> Any:
        if fails[0]:
            raise ValueError("the data are gone")
        return raw * 2

    orchestrator = new_orchestrator(policy(root, "[{match: x}]", RERUN), {**chain(), "clean": (clean, "raw")})
    orchestrator.run()
    lose(orchestrator, "clean")
    fails[0] = True
    with pytest.raises(ObjectLost, match="a rerun task failed: the data are gone") as caught:
        orchestrator.value("clean")
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_durable_tier_is_read_again(
    daemon: Any, new_orchestrator: Callable[..., Any], root: str, tmp_path: Path
) -> None:
    rest = "failover: [{on: object_lost, do: reread_durable}]"
    orchestrator = new_orchestrator(policy(root, "[{match: x}]", rest), chain())
    entrepot.connect(daemon.address, scope="tests", session="run-1", durable=f"{tmp_path}/durable").close()
    connections.close_all()
    orchestrator.run()
    assert orchestrator.store().durable is not None
    lose(orchestrator, "clean")
    reference = orchestrator.references["clean"]
    value = orchestrator.runtime.read(reference, lambda: parts_only(orchestrator, reference))
    assert (value == EXPECTED["clean"]).all()
    assert "reread" in kinds(orchestrator)


def parts_only(orchestrator: Any, reference: Any) -> Any:
    """A read that does not consult the durable tier."""
    if raw_objects.generation_of(orchestrator.store(), reference.id) is None:
        raise ObjectLost("it is not in the store")
    return orchestrator.store().get(reference.id)


def test_a_daemon_that_comes_back_empty(daemon: Any, new_orchestrator: Callable[..., Any], root: str) -> None:
    """Keeper and daemon are restarted: the store's lineage is gone, but the catalog and the orchestrator remain."""
    rest = "failover: [{on: instance_lost, do: [reload_checkpoint, rerun_upstream]}, {on: daemon_lost, do: retry}]"
    orchestrator = new_orchestrator(policy(root, "[{match: raw}]", rest), chain())
    orchestrator.run()
    daemon.stop()
    daemon.start()
    connections.close_all()
    orchestrator.ran.clear()
    assert (orchestrator.value("model") == EXPECTED["model"]).all()
    assert orchestrator.ran == ["clean", "model"]
    assert "instance_lost" in kinds(orchestrator)
    assert orchestrator.runtime.statistics.losses().losses == 1


def test_a_collection_comes_back_with_its_members(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrators: list[Any] = []

    def make() -> Any:
        orders = orchestrators[0].store().collection("orders")
        orders.extend(np.arange(20_000) + number for number in range(3))
        return orders.seal()

    orchestrators.append(new_orchestrator(policy(root, "[{match: one}]"), {"one": (make,)}))
    orchestrator = orchestrators[0]
    orchestrator.run()
    collection = orchestrator.value("one")
    lost = [orchestrator.references["one"].id, collection.id, *collection.ids]
    del collection
    for oid in lost:
        raw_objects.discard(orchestrator.store(), oid)
    assert [int(member[0]) for member in orchestrator.value("one")] == [0, 1, 2]
    assert [int(member[0]) for member in orchestrator.store().get_by_name("orders")] == [0, 1, 2]


def test_damage_on_the_spill_disk(
    socket_folder: Path,
    new_daemon: Callable[..., Any],
    new_orchestrator: Callable[..., Any],
    root: str,
    wait_until: Any,
) -> None:
    """The store still lists the value, but its data cannot be reloaded."""
    running = new_daemon("64MiB", "--spill-path", str(socket_folder / "spill"))
    value = np.random.default_rng(3).integers(0, 1 << 62, 1 << 19)
    orchestrator = new_orchestrator(policy(root, "[{match: one}]"), {"one": (lambda: value,)}, address=running.address)
    orchestrator.run()
    oid = orchestrator.references["one"].id
    orchestrator.store().evict(oid)
    wait_until(lambda: orchestrator.store().info(oid).state == "spilled", "it to leave")
    damaged = 0
    needle = value.tobytes()[: 1 << 16]
    for file in (socket_folder / "spill").rglob("*"):
        if file.is_file() and (at := file.read_bytes().find(needle)) >= 0:
            with file.open("r+b") as opened:
                opened.seek(at + 100)
                opened.write(b"damaged")
            damaged += 1
    assert damaged == 1
    with pytest.raises(ObjectLost):
        orchestrator.store().get(oid)
    assert (orchestrator.value("one") == value).all()
    assert kinds(orchestrator) == ["checkpoint_written", "object_lost", "reloaded", "recovered"]


def test_a_full_store_is_relieved(
    socket_folder: Path, new_daemon: Callable[..., Any], new_orchestrator: Callable[..., Any], root: str
) -> None:
    running = new_daemon("64MiB", "--spill-path", str(socket_folder / "spill"))
    text = policy(root, "[{match: x}]", "failover: [{on: store_full, do: [evict]}]")
    orchestrator = new_orchestrator(text, {"big": (lambda: np.zeros(3 << 20, np.uint8),)}, address=running.address)
    orchestrator.run()
    refused = [True]

    def put() -> str:
        if refused.pop() if refused else False:
            raise StoreFull("no room")
        return "there"

    subject = Subject(BIG)
    assert orchestrator.runtime.failover.write(subject, orchestrator.store, put) == "there"
    assert kinds(orchestrator)[-3:] == ["store_full", "evicted", "recovered"]


def test_rules_of_a_read_see_what_the_output_was(new_orchestrator: Callable[..., Any], root: str) -> None:
    rest = (
        "failover: [{on: object_lost, match: {tag: precious, type: 'numpy.*'}, do: {fail: {reason: hands off}}},\n"
        "  {on: object_lost, do: rerun_upstream}]"
    )
    orchestrator = new_orchestrator(policy(root, "[{match: x}]", rest), chain())
    orchestrator.run()
    with orchestrator.runtime.task(Task("kedro", "pipeline", "run-1", "raw"), tags=frozenset({"precious"})) as task:
        orchestrator.references["raw"] = task.write(
            orchestrator.store(), lambda: put_value(orchestrator.store(), "node:raw", np.arange(20_000) + 1)
        )
    lose(orchestrator, "raw", "clean")
    with pytest.raises(ObjectLost, match="hands off"):
        orchestrator.value("raw")
    with pytest.raises(ObjectLost, match="hands off"):
        orchestrator.value("clean")


def test_retries_of_tasks_have_limits_and_back_off(new_orchestrator: Callable[..., Any], root: str) -> None:
    rest = "failover: [{on: task_failed, do: [{retry: {attempts: 2, delay: 2s, max_delay: 3s}}]}]"
    orchestrator = new_orchestrator(policy(root, "[{match: x}]", rest), chain())
    subject = Subject(BIG)
    decisions = [orchestrator.runtime.task_failed(subject, attempt, "boom") for attempt in (1, 2, 3)]
    assert [(decision.again, decision.delay) for decision in decisions] == [(True, 2.0), (True, 3.0), (False, 0.0)]
    assert decisions[2].reason == "gave up after 2 retries"
    assert orchestrator.runtime.statistics.task(subject.task).failures == 3


def test_writes_are_tried_again(new_orchestrator: Callable[..., Any], root: str) -> None:
    rest = "failover: [{on: [store_full, daemon_lost], do: {retry: {attempts: 3, delay: 1ms}}}]"
    orchestrator = new_orchestrator(policy(root, "[{match: x}]", rest), chain())
    left = [StoreFull("full"), StoreUnavailable("away")]
    subject = Subject(BIG)

    def put() -> int:
        if left:
            raise left.pop()
        return 7

    assert orchestrator.runtime.failover.write(subject, orchestrator.store, put) == 7
    left[:] = [StoreFull(f"full {number}") for number in range(20)]
    with pytest.raises(StoreFull, match=r"full 19 \(policy test.yaml:5 on store_full; tried: retry 1: full 18"):
        orchestrator.runtime.failover.write(subject, orchestrator.store, put)
    assert len(left) == 20 - 1 - 9, "attempts of the rule times attempts of the step"


def test_a_value_that_was_brought_back_goes_with_its_reader(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: clean}]", RERUN), chain())
    orchestrator.run()

    def use(name: str) -> weakref.ref[Any]:
        value = orchestrator.value(name)
        assert (value == EXPECTED[name]).all()
        return weakref.ref(value)

    for name in ("clean", "model"):  # reloaded and rerun, respectively
        lose(orchestrator, name)
        gc.collect()
        gc.disable()
        try:
            # If only a reference cycle through frames kept the value, its pin would keep memory from the next write.
            assert use(name)() is None
        finally:
            gc.enable()


def test_a_value_of_a_later_attempt_is_not_taken_for_the_old(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(
        policy(root, "[{match: clean}]", "failover: [{on: object_lost, do: reload_checkpoint}]"), chain()
    )
    orchestrator.run()
    old = orchestrator.references["clean"]
    orchestrator.nodes = {
        **orchestrator.nodes,
        "clean": type(orchestrator.nodes["clean"])(lambda raw: raw * 3, ("raw",)),
    }
    orchestrator.run_node("clean")
    with pytest.raises(ObjectLost):
        orchestrator.runtime.read(old, lambda: get_value(old, address=orchestrator.store().address))
    assert (orchestrator.value("clean") == np.arange(20_000) * 3).all()
