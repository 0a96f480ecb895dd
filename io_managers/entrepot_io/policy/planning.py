"""Plans which tasks must run again to restore lost objects: as few as possible, in dependency order, without cycles.

A task is in the plan if and only if it makes an object that is wanted and gone; then its inputs are wanted. Since each
object is made by one task, there is no choice, hence no smaller plan. Objects that survive, in the store or in a
loadable checkpoint, end the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from entrepot.errors import ObjectLost
from entrepot.ids import ObjectID

from entrepot_io.policy.lineage import ObjectRef
from entrepot_io.policy.subject import Task

Survival = Literal["store", "checkpoint", "gone"]


class Graph(Protocol):
    """What is known about which task made what from what.

    If a graph also has ``subject(ref) -> Subject | None``, it is asked for the properties that rules match of an object
    without lineage.
    """

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """The task that makes an object; None: unknown."""
        ...

    def inputs(self, task: Task, output: ObjectRef, /) -> Sequence[ObjectRef] | None:
        """The inputs of a task; None: unknown.

        Args:
            task: as returned by :meth:`maker`.
            output: one of the objects that it made.
        """
        ...


@dataclass(frozen=True)
class Rerun:
    """A task that must run again.

    Attributes:
        task: which.
        makes: the objects for which it must.
    """

    task: Task
    makes: tuple[ObjectRef, ...]


@dataclass(frozen=True)
class Plan:
    """A plan that restores lost objects.

    Attributes:
        wanted: the requested objects.
        reloads: objects to load from checkpoints for the tasks to read.
        reruns: the tasks, each after those that make its inputs.
    """

    wanted: tuple[ObjectRef, ...]
    reloads: tuple[ObjectRef, ...]
    reruns: tuple[Rerun, ...]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in order."""
        return tuple(one.task for one in self.reruns)

    def __str__(self) -> str:
        return ", ".join(f"{one.task} (for {', '.join(map(str, one.makes))})" for one in self.reruns)


class NoPlan(ObjectLost):
    """No rerun restores the objects; the message names the object that prevents it."""


class RerunNeeded(ObjectLost):
    """A value can be restored once some tasks have run again, which the orchestrator must do.

    Attributes:
        plan: what to run.
        rule: the policy's rule that requests it, as file and line.
    """

    def __init__(self, plan: Plan, rule: str) -> None:
        super().__init__(
            f"{', '.join(map(str, plan.wanted))}: lost, and in no checkpoint; the policy ({rule}) has these tasks run "
            f"again: {plan}"
        )
        self.plan = plan
        self.rule = rule

    def __reduce__(self) -> tuple[Any, ...]:
        return (RerunNeeded, (self.plan, self.rule))


class Graphs:
    """Several graphs; the first one with an answer wins."""

    def __init__(self, *graphs: Graph | None) -> None:
        self._graphs = [one for one in graphs if one is not None]

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """As :meth:`Graph.maker`."""
        return next((task for one in self._graphs if (task := one.maker(ref)) is not None), None)

    def inputs(self, task: Task, output: ObjectRef, /) -> Sequence[ObjectRef] | None:
        """As :meth:`Graph.inputs`."""
        return next((found for one in self._graphs if (found := one.inputs(task, output)) is not None), None)


def plan_reruns(
    lost: Sequence[ObjectRef],
    graph: Graph,
    survival: Callable[[ObjectRef], Survival],
    *,
    max_tasks: int,
    forbidden: Callable[[ObjectRef], str] = lambda ref: "",
) -> Plan:
    """Plan the restoration of lost objects.

    Args:
        lost: objects that are wanted and gone.
        graph: who made what.
        survival: of an object that is an input; called once for each.
        max_tasks: limit on the tasks to rerun.
        forbidden: why an input must not be recomputed; empty: it may be.

    Raises:
        NoPlan: the task that made an object, or its inputs, are unknown; an input must not be recomputed; the lineage
            is cyclic; or more tasks are needed.
    """
    return _Planner(graph, survival, max_tasks, forbidden).plan(lost)


@dataclass(slots=True)
class _Work:
    """A task whose inputs are being visited."""

    task: Task
    makes: dict[ObjectID, ObjectRef]
    inputs: Iterator[ObjectRef]
    done: bool = False


class _Planner:
    """Depth-first search with an explicit stack: lineage may be deeper than Python's recursion limit."""

    def __init__(
        self,
        graph: Graph,
        survival: Callable[[ObjectRef], Survival],
        max_tasks: int,
        forbidden: Callable[[ObjectRef], str],
    ) -> None:
        self._forbidden = forbidden
        self._graph = graph
        self._survival = survival
        self._max_tasks = max_tasks
        self._known: dict[ObjectID, Survival] = {}
        self._reloads: dict[ObjectID, ObjectRef] = {}
        self._work: dict[Task, _Work] = {}
        self._order: list[_Work] = []

    def plan(self, lost: Sequence[ObjectRef]) -> Plan:
        """Compute the plan."""
        for ref in lost:
            self._known[ref.id] = "gone"
        for ref in lost:
            stack: list[_Work] = []
            self._want(ref, stack)
            while stack:
                top = stack[-1]
                needed = next(top.inputs, None)
                if needed is None:
                    top.done = True
                    self._order.append(top)
                    stack.pop()
                else:
                    self._need(needed, stack)
        reruns = tuple(Rerun(one.task, tuple(one.makes.values())) for one in self._order)
        return Plan(tuple(lost), tuple(self._reloads.values()), reruns)

    def _need(self, ref: ObjectRef, stack: list[_Work]) -> None:
        if ref.id not in self._known:
            self._known[ref.id] = self._survival(ref)
        if self._known[ref.id] == "gone":
            if why := self._forbidden(ref):
                raise NoPlan(f"object {ref}, which {stack[-1].task} reads, is gone, and {why}")
            self._want(ref, stack)
        elif self._known[ref.id] == "checkpoint":
            self._reloads.setdefault(ref.id, ref)

    def _want(self, ref: ObjectRef, stack: list[_Work]) -> None:
        task = self._graph.maker(ref)
        if task is None:
            needed_by = f", which {stack[-1].task} reads," if stack else ""
            raise NoPlan(
                f"object {ref}{needed_by} is gone, and neither lineage nor host knows which task made it: run the "
                "pipeline from its start"
            )
        known = self._work.get(task)
        if known is not None:
            known.makes.setdefault(ref.id, ref)
            if not known.done:
                names = [str(one.task) for one in stack]
                circle = " <- ".join([*names[names.index(str(task)) :], str(task)])
                raise NoPlan(f"the lineage of {ref} goes in a circle ({circle}): no task of it can run first")
            return
        inputs = self._graph.inputs(task, ref)
        if inputs is None:
            raise NoPlan(
                f"object {ref} is gone, and nobody knows all that its task {task} reads: run the pipeline from its "
                "start"
            )
        if len(self._work) >= self._max_tasks:
            raise NoPlan(
                f"more than {self._max_tasks} tasks would have to run again (max_tasks of the rule): run the pipeline "
                "from its start, or checkpoint more"
            )
        made = self._work[task] = _Work(task, {ref.id: ref}, iter(inputs))
        stack.append(made)
