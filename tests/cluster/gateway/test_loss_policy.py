"""A task whose input was on a host that was killed: what the policy does, through the layer of all orchestrators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.errors import ObjectLost
from entrepot_io import connections
from entrepot_io.reference import Reference
from entrepot_io.values import get_value, put_value
from entrepot_policy.recovery.planning import Plan
from entrepot_policy.rules.loader import parse_policy
from entrepot_policy.rules.match_target import Task
from entrepot_policy.runtime import PolicyRuntime
from entrepot_policy.state.events import read_events
from entrepot_policy.state.lineage import ObjectRef

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

SCOPE, RUN = "tests", "run-1"
SAYS = r"host a \(instance .*, lost since 20"
TASKS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "saved": (lambda: np.arange(20_000), ()),
    "derived": (lambda saved: saved * 2, ("saved",)),
    "replica": (lambda: "on two hosts", ()),
    "alone": (lambda: np.full(20_000, 7), ()),
}


class HostOfTasks:
    """Runs tasks on one host; references to what they wrote are known everywhere, as in an orchestrator.

    It implements Graph and Rerunner, as a plugin does.
    """

    def __init__(self, address: str, text: str, references: dict[str, Reference], events: Path) -> None:
        self.address = address
        self.references = references
        self.ran: list[str] = []
        self.runtime = PolicyRuntime(
            parse_policy(f"{text}\nevents: {{folder: {events}}}\n", "test.yaml", {}),
            scope=SCOPE,
            address=address,
            graph=self,
            rerunner=self,
            sleep=lambda seconds: None,
        )

    def store(self) -> entrepot.Store:
        return self.runtime.session(RUN)

    def run(self, name: str) -> None:
        self.ran.append(name)
        function, inputs = TASKS[name]
        with self.runtime.task(task_of(name)) as task:
            values = [task.read(self.references[each], self._reads(each)) for each in inputs]
            result = function(*values)
            self.references[name] = task.write(self.store(), lambda: put_value(self.store(), f"node:{name}", result))

    def value(self, name: str) -> Any:
        return self.runtime.read(self.references[name], self._reads(name))

    def events(self) -> list[str]:
        return [event.kind for event in read_events(self.runtime.log.path)]

    def _reads(self, name: str) -> Callable[[], Any]:
        reference = self.references[name]
        return lambda: get_value(reference, address=self.address)

    def maker(self, ref: ObjectRef) -> Task | None:
        name = ref.key.removeprefix("node:")
        return task_of(name) if name in TASKS else None

    def inputs(self, task: Task, output: ObjectRef) -> Sequence[ObjectRef] | None:
        return [ObjectRef.of(self.references[name]) for name in TASKS[task.name][1]]

    def rerun(self, plan: Plan) -> None:
        for task in plan.tasks:
            self.run(task.name)


def task_of(name: str) -> Task:
    return Task("kedro", "pipeline", RUN, name)


@pytest.fixture
def lost_host(cluster: Any, tmp_path: Path, wait_until: Callable[..., None]) -> Iterator[Any]:
    """``(b, policy, references)``: all tasks ran on host a, which was killed; their references are into it."""
    policy = f"version: 1\ncheckpoint: {{target: {tmp_path}/saved, rules: [{{match: saved}}]}}"
    a, b = cluster.host("a"), cluster.host("b")
    references: dict[str, Reference] = {}
    remote = HostOfTasks(a.address, policy, references, tmp_path / "events-a")
    for name in TASKS:
        remote.run(name)
    for reference in references.values():
        remote.store().publish(reference.id)
    assert get_value(references["replica"], address=b.address) == "on two hosts"  # a copy, from now on
    a.kill()
    wait_until(lambda: not cluster.instances()["a"], "the lease to end")
    wait_until(lambda: not b.store.locate(references["alone"].id)[0].is_live, "the other gateway to see it")
    yield b, policy, references
    connections.close_all()


def reader(lost_host: Any, tmp_path: Path, steps: str) -> HostOfTasks:
    b, policy, references = lost_host
    text = (
        f"{policy}\nfailover: [{{on: instance_lost, do: {steps}}}, {{on: object_lost, do: [{{fail: {{reason: no}}}}]}}]"
    )
    return HostOfTasks(b.address, text, references, tmp_path / "events-b")


def equal(first: Any, second: Any) -> bool:
    return bool(np.array_equal(first, second))


def test_copy_checkpoint_rerun_in_the_order_of_the_policy(lost_host: Any, tmp_path: Path) -> None:
    here = reader(lost_host, tmp_path, "[reload_checkpoint, reread_durable, rerun_upstream]")
    assert here.value("replica") == "on two hosts"
    assert here.events() == []  # another copy is no loss
    assert equal(here.value("saved"), np.arange(20_000))
    assert here.ran == []
    assert here.events() == ["instance_lost", "reloaded", "recovered"]
    assert equal(here.value("derived"), np.arange(20_000) * 2)
    assert here.ran == ["derived"]  # with what was reloaded
    assert equal(here.value("alone"), np.full(20_000, 7))
    assert here.ran == ["derived", "alone"]


def test_rerun_first_if_the_policy_says_so(lost_host: Any, tmp_path: Path) -> None:
    here = reader(lost_host, tmp_path, "[rerun_upstream, reload_checkpoint]")
    assert equal(here.value("alone"), np.full(20_000, 7))
    assert here.ran == ["alone"]


def test_fail_names_the_host_and_the_time(lost_host: Any, tmp_path: Path) -> None:
    here = reader(lost_host, tmp_path, '[reload_checkpoint, {fail: {reason: "ask the data team"}}]')
    assert equal(here.value("saved"), np.arange(20_000))
    with pytest.raises(ObjectLost, match=r"ask the data team.*" + SAYS):
        here.value("alone")
    assert here.ran == []
    assert here.events()[-1] == "gave_up"


def test_the_durable_tier_answers(cluster: Any, tmp_path: Path, wait_until: Callable[..., None]) -> None:
    a, b = cluster.host("a"), cluster.host("b")
    durable = entrepot.Durable(str(tmp_path / "durable"))
    with entrepot.connect(a.address, scope=SCOPE, session=RUN, durable=durable) as remote:
        reference = put_value(remote, "node:alone", np.full(20_000, 7))
    with entrepot.connect(b.address, scope=SCOPE, session=RUN, durable=durable):
        a.kill()
        wait_until(lambda: not cluster.instances()["a"], "the lease to end")
        text = "version: 1\nfailover: [{on: instance_lost, do: [reread_durable, {fail: {reason: no}}]}]"
        here = HostOfTasks(b.address, text, {"alone": reference}, tmp_path / "events")
        assert equal(here.value("alone"), np.full(20_000, 7))
        assert here.ran == []
    connections.close_all()


def test_the_directory_is_away(lost_host: Any, cluster: Any, tmp_path: Path) -> None:
    here = reader(lost_host, tmp_path, "[reload_checkpoint, {fail: {reason: no checkpoint}}]")
    folder = Path(cluster.url.removeprefix("embedded://")).parent
    away = folder.with_name(f"{folder.name}-away")
    folder.rename(away)
    try:
        assert equal(here.value("saved"), np.arange(20_000))
        with pytest.raises(ObjectLost, match=r"no checkpoint\..*" + SAYS):
            here.value("alone")
    finally:
        away.rename(folder)
