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

from entrepot_policy.rules.match_target import Task
from entrepot_policy.state.lineage import ObjectRef

Survival = Literal["store", "checkpoint", "gone"]


class Graph(Protocol):
    """Lineage: the task that produced each object, and its inputs.

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
        outputs: the objects for which it must.
    """

    task: Task
    outputs: tuple[ObjectRef, ...]


@dataclass(frozen=True)
class Plan:
    """A plan that restores lost objects.

    Attributes:
        requested: the requested objects.
        reloads: objects to load from checkpoints for the tasks to read.
        reruns: the tasks, each after those that make its inputs.
    """

    requested: tuple[ObjectRef, ...]
    reloads: tuple[ObjectRef, ...]
    reruns: tuple[Rerun, ...]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in order."""
        return tuple(rerun.task for rerun in self.reruns)

    def __str__(self) -> str:
        return ", ".join(f"{rerun.task} (for {', '.join(map(str, rerun.outputs))})" for rerun in self.reruns)


class PlanningError(ObjectLost):
    """No rerun restores the objects; the message names the object that prevents it."""

    short_code = "E702"


class RerunNeeded(ObjectLost):
    """A value can be restored once some tasks have run again, which the orchestrator must do.

    Attributes:
        plan: what to run.
        rule: the policy's rule that requests it, as file and line.
    """

    short_code = "E703"

    def __init__(self, plan: Plan, rule: str) -> None:
        super().__init__(
            f"{', '.join(map(str, plan.requested))}: lost and not checkpointed; the policy ({rule}) requests a rerun "
            f"of these tasks: {plan}"
        )
        self.plan = plan
        self.rule = rule

    def __reduce__(self) -> tuple[Any, ...]:
        return (RerunNeeded, (self.plan, self.rule))


class CombinedGraph:
    """Several graphs; the first one with an answer wins."""

    def __init__(self, *graphs: Graph | None) -> None:
        self._graphs = [graph for graph in graphs if graph is not None]

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """As :meth:`Graph.maker`."""
        return next((task for graph in self._graphs if (task := graph.maker(ref)) is not None), None)

    def inputs(self, task: Task, output: ObjectRef, /) -> Sequence[ObjectRef] | None:
        """As :meth:`Graph.inputs`."""
        return next((answer for graph in self._graphs if (answer := graph.inputs(task, output)) is not None), None)


def plan_reruns(
    lost: Sequence[ObjectRef],
    graph: Graph,
    survival: Callable[[ObjectRef], Survival],
    *,
    max_tasks: int,
    refusal: Callable[[ObjectRef], str] = lambda ref: "",
) -> Plan:
    """Plan the restoration of lost objects.

    Args:
        lost: objects that are wanted and gone.
        graph: who made what.
        survival: of an object that is an input; called once for each.
        max_tasks: limit on the tasks to rerun.
        refusal: why an input must not be recomputed; empty: it may be.

    Raises:
        PlanningError: the task that made an object, or its inputs, are unknown; an input must not be recomputed; the
            lineage is cyclic; or more tasks are needed.
    """
    return _Planner(graph, survival, max_tasks, refusal).plan(lost)


@dataclass(slots=True)
class _Visit:
    """A task whose inputs are being visited."""

    task: Task
    outputs: dict[ObjectID, ObjectRef]
    inputs: Iterator[ObjectRef]
    done: bool = False


class _Planner:
    """Depth-first search with an explicit stack: lineage may be deeper than Python's recursion limit."""

    def __init__(
        self,
        graph: Graph,
        survival: Callable[[ObjectRef], Survival],
        max_tasks: int,
        refusal: Callable[[ObjectRef], str],
    ) -> None:
        self._refusal = refusal
        self._graph = graph
        self._survival = survival
        self._max_tasks = max_tasks
        self._survivals: dict[ObjectID, Survival] = {}
        self._reloads: dict[ObjectID, ObjectRef] = {}
        self._visits: dict[Task, _Visit] = {}
        self._order: list[_Visit] = []

    def plan(self, lost: Sequence[ObjectRef]) -> Plan:
        """Compute the plan."""
        for ref in lost:
            self._survivals[ref.id] = "gone"
        for ref in lost:
            stack: list[_Visit] = []
            self._push_maker(ref, stack)
            while stack:
                top = stack[-1]
                needed = next(top.inputs, None)
                if needed is None:
                    top.done = True
                    self._order.append(top)
                    stack.pop()
                else:
                    self._visit_input(needed, stack)
        reruns = tuple(Rerun(visit.task, tuple(visit.outputs.values())) for visit in self._order)
        return Plan(tuple(lost), tuple(self._reloads.values()), reruns)

    def _visit_input(self, ref: ObjectRef, stack: list[_Visit]) -> None:
        if ref.id not in self._survivals:
            self._survivals[ref.id] = self._survival(ref)
        if self._survivals[ref.id] == "gone":
            if reason := self._refusal(ref):
                raise PlanningError(f"object {ref}, which {stack[-1].task} reads, is lost, and {reason}")
            self._push_maker(ref, stack)
        elif self._survivals[ref.id] == "checkpoint":
            self._reloads.setdefault(ref.id, ref)

    def _push_maker(self, ref: ObjectRef, stack: list[_Visit]) -> None:
        task = self._graph.maker(ref)
        if task is None:
            needed_by = f", which {stack[-1].task} reads," if stack else ""
            raise PlanningError(
                f"object {ref}{needed_by} is lost, and neither its lineage nor the orchestrator names the task that "
                "produced it: rerun the pipeline from the start"
            )
        existing = self._visits.get(task)
        if existing is not None:
            existing.outputs.setdefault(ref.id, ref)
            if not existing.done:
                names = [str(ancestor.task) for ancestor in stack]
                cycle = " <- ".join([*names[names.index(str(task)) :], str(task)])
                raise PlanningError(f"the lineage of {ref} is cyclic ({cycle}): none of its tasks can run first")
            return
        inputs = self._graph.inputs(task, ref)
        if inputs is None:
            raise PlanningError(
                f"object {ref} is lost, and not all inputs of its task {task} are known: rerun the pipeline from the "
                "start"
            )
        if len(self._visits) >= self._max_tasks:
            raise PlanningError(
                f"more than {self._max_tasks} tasks would have to be rerun (max_tasks of the rule): rerun the pipeline "
                "from the start, or checkpoint more"
            )
        visit = self._visits[task] = _Visit(task, {ref.id: ref}, iter(inputs))
        stack.append(visit)
