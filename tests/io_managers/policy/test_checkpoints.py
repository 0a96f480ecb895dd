"""Checkpoints by a policy: which outputs, when they are written, and what happens to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from entrepot import raw_objects
from entrepot.errors import StoreFull, StoreUnavailable
from entrepot_checkpoints import list_checkpoints, write_behind
from entrepot_policy.state.events import read_events
from entrepot_policy.state.lineage import ObjectRef

TASK_DELAY_SECONDS = 0.005


def policy(root: str, rules: str, more: str = "") -> str:
    return f"version: 1\ncheckpoint: {{target: '{root}/{{run}}', {more} rules: {rules}}}\n"


def node(value: Any = None) -> dict[str, tuple[Any, ...]]:
    return {"one": (lambda: np.arange(20_000) if value is None else value,)}


def kinds(orchestrator: Any) -> list[str]:
    return [event.kind for event in read_events(orchestrator.runtime.log.path)]


def checkpoints_of(orchestrator: Any, name: str = "one") -> list[Any]:
    entries, failed = orchestrator.runtime.checkpoints.catalogs.find(orchestrator.references[name].id)
    assert not failed
    return [entry for _, entry in entries]


@pytest.mark.parametrize(
    ("rule", "written", "reason"),
    [
        ("{match: one}", True, "always"),
        ("{match: two}", False, None),
        ("{match: one, when: never}", False, "the rule says never"),
        ("{match: one, when: {size: '>1MiB'}}", False, "its size is 156.2 KiB, not >1MiB"),
        ("{match: one, when: {size: ['>1kB', '<1MiB']}}", True, "its size is 156.2 KiB"),
        ("{match: one, when: {fan_out: '>=2'}}", False, "the number of tasks that read it is not known"),
        ("{match: one, when: {recompute_seconds: '>1h'}}", False, "not >1h"),
        ("{match: one, when: auto}", False, "expected costs"),
        ("{match: {key: 'node:*', type: 'numpy.*'}}", True, "always"),
    ],
)
def test_what_is_checkpointed(
    new_orchestrator: Callable[..., Any], root: str, rule: str, written: bool, reason: str | None
) -> None:
    orchestrator = new_orchestrator(policy(root, f"[{rule}]"), node())
    orchestrator.run()
    events = list(read_events(orchestrator.runtime.log.path))
    assert [event.kind for event in events] == (
        ["checkpoint_written"] if written else ["checkpoint_skipped"] if reason is not None else []
    )
    assert reason is None or reason in events[0].text
    assert len(checkpoints_of(orchestrator)) == written
    if written:
        assert (orchestrator.store().get(orchestrator.references["one"].id) == np.arange(20_000)).all()
        (info,) = list_checkpoints(f"{root}/run-1")
        assert info.objects == 2, "the value and its lineage"


def test_every_nth_run(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: one, every: 3}]"), node())
    task = orchestrator.maker(ObjectRef("", orchestrator.store().derive("x"), "node:one"))
    decided = []
    for run in range(7):
        number = orchestrator.runtime.statistics.record_run_start(type(task)("kedro", "pipeline", f"r{run}", "one"))
        orchestrator.runtime.statistics.record_run_start(type(task)("kedro", "pipeline", f"r{run}", "one"))  # a retry
        subject = orchestrator.runtime.task(task).subject.of_value(key="k", type="t", nbytes=5)
        decided.append(orchestrator.runtime.decide(orchestrator.store(), subject, number, 1.0, []).write)
    assert decided == [True, False, False, True, False, False, True]


def test_what_comes_before_and_is_in_no_checkpoint_counts(new_orchestrator: Callable[..., Any], root: str) -> None:
    from entrepot_policy.checkpoints.checkpointer import recompute_seconds
    from entrepot_policy.state import lineage
    from entrepot_policy.state.lineage import Lineage

    orchestrator = new_orchestrator(policy(root, "[{match: none}]"), node())
    store = orchestrator.store()

    def write(name: str, inputs: list[str], seconds: float, checkpointed: bool = False) -> ObjectRef:
        ref = ObjectRef("run-1", store.derive(name), name)
        before = tuple(ObjectRef("run-1", store.derive(input_name), input_name) for input_name in inputs)
        task = type(orchestrator.maker(ObjectRef("", ref.id, "node:one")))("kedro", "p", "r", name)
        lineage.write(store, Lineage(ref, task, before, True, seconds, 0.0, checkpointed))
        return ref

    write("saved", [], 1000.0, checkpointed=True)
    write("a", ["saved"], 10.0)
    write("b", ["a"], 20.0)
    last = write("c", ["a", "b"], 30.0)
    assert recompute_seconds(store, 5.0, (last,)) == 5 + 30 + 20 + 10, "each task once, and nothing behind a checkpoint"
    assert recompute_seconds(store, 5.0, (last,), max_objects=2) == 5 + 30 + 20, "no more objects are visited"


def test_keep_counts_over_runs(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: one, keep: 2}]"), node())
    for number in range(4):
        orchestrator.nodes = {"one": type(orchestrator.nodes["one"])(lambda number=number: np.arange(20_000) + number)}
        orchestrator.run()
        time.sleep(0)
    assert len(list_checkpoints(f"{root}/run-1")) == 2
    assert kinds(orchestrator).count("checkpoint_pruned") == 2
    assert len(checkpoints_of(orchestrator)) == 2
    before = len(list(Path(root).glob("run-1/.entrepot/chunks/*/*")))
    report = orchestrator.runtime.run_ended(orchestrator.store())
    assert report.swept == 2
    assert not report.problems
    assert len(list(Path(root).glob("run-1/.entrepot/chunks/*/*"))) == before - 2


def test_async_does_not_delay_the_task(
    new_orchestrator: Callable[..., Any], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: one, mode: async}]"), node(np.zeros(8 << 20, np.uint8)))
    gate = threading.Event()
    real = type(orchestrator.runtime.checkpoints)._save

    def slow_write(self: Any, *arguments: Any) -> bool:
        assert gate.wait(60)
        return bool(real(self, *arguments))

    monkeypatch.setattr(type(orchestrator.runtime.checkpoints), "_save", slow_write)
    orchestrator.run()
    delays = []
    for _ in range(5):
        reference = orchestrator.references["one"]
        with orchestrator.runtime.task(orchestrator.maker(ObjectRef.of(reference))) as task:
            subject = task.subject.of_value(key="node:one", type="numpy.ndarray", nbytes=8 << 20)
            begun = time.perf_counter()
            task._record_output(orchestrator.store(), reference, subject)
            delays.append(time.perf_counter() - begun)
    assert min(delays) < TASK_DELAY_SECONDS, delays
    assert checkpoints_of(orchestrator) == []
    gate.set()
    report = orchestrator.runtime.run_ended(orchestrator.store())
    assert not report.abandoned
    assert not report.problems
    assert len(checkpoints_of(orchestrator)) == 1


def test_what_does_not_fit_the_queue_is_written_at_the_end(
    new_orchestrator: Callable[..., Any], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {f"n{i}": (lambda i=i: np.arange(20_000) + i,) for i in range(4)}
    orchestrator = new_orchestrator(policy(root, "[{mode: async}]", "queue: 1,"), nodes)
    gate = threading.Event()
    real = type(orchestrator.runtime.checkpoints)._save
    monkeypatch.setattr(
        type(orchestrator.runtime.checkpoints), "_save", lambda self, *rest: gate.wait(60) and real(self, *rest)
    )
    orchestrator.run()
    assert kinds(orchestrator).count("checkpoint_skipped") == 3
    gate.set()
    report = orchestrator.runtime.run_ended(orchestrator.store())
    assert (report.written, report.abandoned) == (3, [])
    assert all(len(checkpoints_of(orchestrator, name)) == 1 for name in nodes)
    assert orchestrator.store().list("entrepot.pending/*") == []


def test_the_wait_ends_and_another_process_takes_over(
    new_orchestrator: Callable[..., Any], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchestrator = new_orchestrator(policy(root, "[{mode: async}]"), node())
    gate = threading.Event()
    real = type(orchestrator.runtime.checkpoints)._save
    with monkeypatch.context() as patched:
        patched.setattr(
            type(orchestrator.runtime.checkpoints), "_save", lambda self, *rest: gate.wait(60) and real(self, *rest)
        )
        orchestrator.run()
        report = orchestrator.runtime.run_ended(orchestrator.store(), wait_seconds=0.05)
        assert report.abandoned == ["node:one"]
        assert (orchestrator.value("one") == np.arange(20_000)).all(), "the value is where it was"
    other = new_orchestrator(policy(root, "[{mode: async}]"), node())
    assert other.runtime.run_ended(other.store()).written == 1
    assert len(checkpoints_of(orchestrator)) == 1
    gate.set()
    orchestrator.runtime.run_ended(orchestrator.store())  # waits for its thread
    assert len(checkpoints_of(orchestrator)) == 1


def test_a_target_that_is_away_is_tried_again_and_left_to_the_end(
    new_orchestrator: Callable[..., Any], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchestrator = new_orchestrator(policy(root, "[{mode: async}]"), node())
    kind = type(orchestrator.runtime.checkpoints)
    tried: list[int] = []

    def away(*_: Any) -> bool:
        tried.append(1)
        raise StoreUnavailable("the bucket does not answer")

    monkeypatch.setattr(write_behind, "PAUSE_SECONDS", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(kind, "_save_to", away)
        orchestrator.run()
        orchestrator.runtime.checkpoints._write_behind.flush(30)
    assert len(tried) == write_behind.ATTEMPTS
    assert "stays pending" in [event.text for event in read_events(orchestrator.runtime.log.path)][-1]
    assert orchestrator.runtime.run_ended(orchestrator.store()).written == 1


KILLED = """
import json, os, signal, sys
import numpy as np
from entrepot_io.values import put_value
from entrepot_policy.checkpoints import checkpointer
from entrepot_policy.rules.loader import parse_policy
from entrepot_policy.runtime import PolicyRuntime
from entrepot_policy.rules.match_target import Task
checkpointer.Checkpointer._save = lambda *rest: os.kill(os.getpid(), signal.SIGKILL)
runtime = PolicyRuntime(parse_policy(sys.argv[2], "test.yaml", {}), scope="tests", address=sys.argv[1])
store = runtime.session("run-1")
with runtime.task(Task("kedro", "pipeline", "run-1", "one")) as task:
    task.write(store, lambda: put_value(store, "node:one", np.arange(20_000)))
runtime.run_ended(store)
"""


def test_what_a_killed_process_had_put_off_is_written(new_orchestrator: Callable[..., Any], root: str) -> None:
    text = policy(root, "[{mode: async}]")
    orchestrator = new_orchestrator(text, node())
    command = [sys.executable, "-c", KILLED, orchestrator.store().address, text]
    assert subprocess.run(command, timeout=60).returncode == -signal.SIGKILL
    assert orchestrator.runtime.run_ended(orchestrator.store()).written == 1
    oid = orchestrator.store().derive("node:one")
    assert len(orchestrator.runtime.checkpoints.catalogs.find(oid)[0]) == 1


def test_a_full_target_fails_over_to_the_next(
    new_orchestrator: Callable[..., Any], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        f"version: 1\ntargets:\n  a: {{url: '{root}/a', fallback: b}}\n  b: {{url: '{root}/b'}}\n"
        "checkpoint: {target: a, rules: [{match: '*'}]}\n"
    )
    orchestrator = new_orchestrator(text, node())
    real = os.write

    def full(file: int, data: Any) -> int:
        if f"{root}/a/" in os.readlink(f"/proc/self/fd/{file}"):
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", full)
    orchestrator.run()
    assert kinds(orchestrator) == ["checkpoint_failed", "checkpoint_written"]
    assert checkpoints_of(orchestrator)[0].url.startswith(f"{root}/b/")
    raw_objects.discard(orchestrator.store(), orchestrator.references["one"].id)
    assert (orchestrator.value("one") == np.arange(20_000)).all()


@pytest.mark.parametrize("on_error", ["warn", "fail"])
def test_a_checkpoint_that_fails_may_fail_its_task(
    new_orchestrator: Callable[..., Any], root: str, monkeypatch: pytest.MonkeyPatch, on_error: str
) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: '*'}]", f"on_error: {on_error},"), node())

    def full(*_: Any) -> bool:
        raise StoreFull("the target is full")

    monkeypatch.setattr(type(orchestrator.runtime.checkpoints), "_save_to", full)
    if on_error == "fail":
        with pytest.raises(StoreFull, match=r"required by test\.yaml:2 failed"):
            orchestrator.run()
    else:
        orchestrator.run()
        assert (orchestrator.value("one") == np.arange(20_000)).all()
    assert "checkpoint_failed" in kinds(orchestrator)


def test_a_replaced_value_has_no_checkpoint_of_the_old_one(
    new_orchestrator: Callable[..., Any], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchestrator = new_orchestrator(policy(root, "[{mode: async}]"), node())
    gate = threading.Event()
    real = type(orchestrator.runtime.checkpoints)._save
    monkeypatch.setattr(
        type(orchestrator.runtime.checkpoints), "_save", lambda self, *rest: gate.wait(60) and real(self, *rest)
    )
    orchestrator.run()
    orchestrator.nodes = {"one": type(orchestrator.nodes["one"])(lambda: np.arange(20_000) + 1)}
    orchestrator.run()
    gate.set()
    assert orchestrator.runtime.run_ended(orchestrator.store()).problems == []
    (entry,) = checkpoints_of(orchestrator)
    assert entry.ref.generation == orchestrator.references["one"].generation


def test_a_value_replaced_while_it_is_saved_has_no_checkpoint(
    new_orchestrator: Callable[..., Any], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from entrepot_checkpoints import writer

    orchestrator = new_orchestrator(policy(root, "[{match: one}]"), node())
    real = writer.save

    def save(*arguments: Any, **options: Any) -> Any:
        report = real(*arguments, **options)
        if len(orchestrator.ran) == 1:
            orchestrator.nodes = {"one": type(orchestrator.nodes["one"])(lambda: np.arange(20_000) + 1)}
            orchestrator.run()
        return report

    monkeypatch.setattr(writer, "save", save)
    orchestrator.run()
    (entry,) = checkpoints_of(orchestrator)
    generation = raw_objects.generation_of(orchestrator.store(), orchestrator.references["one"].id)
    assert entry.ref.generation == generation
    assert [info.url for info in list_checkpoints(f"{root}/run-1")] == [entry.url]


def test_a_checkpoint_that_two_processes_added_is_kept(new_orchestrator: Callable[..., Any], root: str) -> None:
    orchestrator = new_orchestrator(policy(root, "[{match: one, keep: 1}]"), node())
    orchestrator.run()
    (file,) = Path(root).glob(".entrepot/catalog/outputs/*/*")
    twin = file.with_name(f"{0:020d}-00000000.json")
    twin.write_bytes(file.read_bytes())
    catalog = orchestrator.runtime.checkpoints.catalogs.for_target(orchestrator.runtime.policy.all_targets()[0])
    assert catalog.prune(checkpoints_of(orchestrator)[0], 1) == []
    assert file.exists()
    assert not twin.exists()
    raw_objects.discard(orchestrator.store(), orchestrator.references["one"].id)
    assert (orchestrator.value("one") == np.arange(20_000)).all()


def test_entries_that_somebody_edited_remove_nothing_elsewhere(
    new_orchestrator: Callable[..., Any], root: str, tmp_path: Path
) -> None:
    from entrepot.errors import CorruptData

    orchestrator = new_orchestrator(policy(root, "[{match: one, keep: 1}]"), node())
    orchestrator.run()
    precious = tmp_path / "precious" / "data"
    precious.mkdir(parents=True)
    (precious / "manifest.json").write_text("mine")
    (file,) = Path(root).glob(".entrepot/catalog/outputs/*/*")
    entry = json.loads(file.read_text())
    for url in (str(precious), f"{root}/../precious/data"):
        file.write_text(json.dumps(entry | {"url": url}))
        catalog = orchestrator.runtime.checkpoints.catalogs.for_target(orchestrator.runtime.policy.all_targets()[0])
        with pytest.raises(CorruptData, match="outside of it"):
            catalog.prune(checkpoints_of(orchestrator)[0], 0)
        assert (precious / "manifest.json").read_text() == "mine"


FORKED = """
import os, sys, threading
import numpy as np
from entrepot_io.values import put_value
from entrepot_policy.checkpoints import checkpointer
from entrepot_policy.rules.loader import parse_policy
from entrepot_policy.runtime import PolicyRuntime
from entrepot_policy.rules.match_target import Task
runtime = PolicyRuntime(parse_policy(sys.argv[2], "test.yaml", {}), scope="tests", address=sys.argv[1])

def run(name):
    store = runtime.session("run-1")
    with runtime.task(Task("kedro", "pipeline", "run-1", name)) as task:
        task.write(store, lambda: put_value(store, "node:" + name, np.arange(20_000)))

gate, real = threading.Event(), checkpointer.Checkpointer._save
checkpointer.Checkpointer._save = lambda *rest: gate.wait(60) and real(*rest)
run("parent")
child = os.fork()
if child == 0:
    checkpointer.Checkpointer._save = real
    run("child")
    report = runtime.run_ended(runtime.session("run-1"))
    assert not report.problems, report
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
gate.set()
assert not runtime.run_ended(runtime.session("run-1")).problems
"""


def test_a_forked_child_has_a_queue_of_its_own(new_orchestrator: Callable[..., Any], root: str) -> None:
    text = policy(root, "[{mode: async}]")
    orchestrator = new_orchestrator(text, node())
    done = subprocess.run(
        [sys.executable, "-c", FORKED, orchestrator.store().address, text], capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for name in ("parent", "child"):
        entries, _ = orchestrator.runtime.checkpoints.catalogs.find(orchestrator.store().derive(f"node:{name}"))
        assert [entry.task.name for _, entry in entries] == [name]
