"""A store, and a minimal orchestrator that runs named functions one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot_io import connections
from entrepot_io.reference import Reference
from entrepot_io.values import get_value, put_value
from entrepot_policy.recovery.planning import Plan
from entrepot_policy.rules.loader import parse_policy
from entrepot_policy.rules.match_target import Task
from entrepot_policy.runtime import PolicyRuntime
from entrepot_policy.state.lineage import ObjectRef

SCOPE = "tests"
RUN = "run-1"


@dataclass(frozen=True)
class Node:
    """A function that computes one value from the values of its inputs."""

    function: Callable[..., Any]
    inputs: tuple[str, ...] = ()


class Orchestrator:
    """Minimal orchestrator: runs nodes in order, each of which writes one value under its own name.

    It implements Graph and Rerunner, as a plugin does.

    Attributes:
        ran: names of the nodes that ran, in order, including reruns.
        references: the newest value's reference, by node.
    """

    def __init__(self, address: str, text: str, nodes: Mapping[str, Node], *, reruns: bool = True) -> None:
        self.nodes = nodes
        self.ran: list[str] = []
        self.references: dict[str, Reference] = {}
        self.runtime = PolicyRuntime(
            parse_policy(text, "test.yaml", {}),
            scope=SCOPE,
            address=address,
            graph=self,
            rerunner=self if reruns else None,
            sleep=lambda seconds: None,
        )

    def store(self) -> entrepot.Store:
        return self.runtime.session(RUN)

    def run(self, names: Sequence[str] | None = None) -> None:
        for name in self.nodes if names is None else names:
            self.run_node(name)

    def run_node(self, name: str) -> None:
        node = self.nodes[name]
        self.ran.append(name)
        with self.runtime.task(task_of(name)) as task:
            values = [self._read(task, input_name) for input_name in node.inputs]
            result = node.function(*values)
            self.references[name] = task.write(self.store(), lambda: put_value(self.store(), f"node:{name}", result))

    def value(self, name: str) -> Any:
        """The value of a node, read through the policy as its consumer would."""
        reference = self.references[name]
        return self.runtime.read(reference, lambda: get_value(reference, address=self.store().address))

    def _read(self, task: Any, name: str) -> Any:
        reference = self.references[name]
        return task.read(reference, lambda: get_value(reference, address=self.store().address))

    # --- Graph

    def maker(self, ref: ObjectRef) -> Task | None:
        name = ref.key.removeprefix("node:")
        return task_of(name) if name in self.nodes else None

    def inputs(self, task: Task, output: ObjectRef) -> Sequence[ObjectRef] | None:
        return [ObjectRef.of(self.references[name]) for name in self.nodes[task.name].inputs]

    # --- Rerunner

    def rerun(self, plan: Plan) -> None:
        for task in plan.tasks:
            self.run_node(task.name)


def task_of(name: str) -> Task:
    return Task("kedro", "pipeline", RUN, name)


@pytest.fixture
def store(daemon: Any) -> Iterator[entrepot.Store]:
    """The run's session."""
    with entrepot.connect(daemon.address, scope=SCOPE, session=RUN) as connected:
        yield connected


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use an event log for this test, and close all connections after it."""
    monkeypatch.setenv("ENTREPOT_EVENTS", str(tmp_path / "events"))
    yield
    connections.close_all()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Directory for checkpoints."""
    return str(tmp_path / "checkpoints")


@pytest.fixture
def new_orchestrator(request: pytest.FixtureRequest) -> Callable[..., Orchestrator]:
    """``new_orchestrator(policy_text, nodes, reruns=True, address=None)``: an orchestrator, by default on the test's
    own store."""

    def make(
        text: str, nodes: Mapping[str, tuple[Any, ...]], *, reruns: bool = True, address: str | None = None
    ) -> Orchestrator:
        built = {name: Node(function, tuple(inputs)) for name, (function, *inputs) in nodes.items()}
        return Orchestrator(address or request.getfixturevalue("daemon").address, text, built, reruns=reruns)

    return make
