"""The interface through which a policy has an orchestrator run tasks again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from entrepot_io.tracing import switch as tracing

from entrepot_policy.recovery.planning import Plan
from entrepot_policy.rules.match_target import Task
from entrepot_policy.state import lineage, records
from entrepot_policy.state.lineage import ObjectRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from entrepot import Store

RERUNS = "entrepot.reruns/"
RERUN_WINDOW_SECONDS = 86400.0


@runtime_checkable
class Rerunner(Protocol):
    """Runs tasks again from within the task that misses their outputs.

    An orchestrator that can do that (Kedro, whose nodes are functions of this process; Dagster, with a separate run
    that is waited for) passes one to :class:`~entrepot_policy.runtime.PolicyRuntime`. One that cannot (Airflow,
    which clears upstream tasks and requeues the reader) passes none, catches
    :class:`~entrepot_policy.recovery.planning.RerunNeeded`, and carries out its plan.
    """

    def rerun(self, plan: Plan, /) -> None:
        """Run the plan's tasks in order, and return when all have succeeded.

        The tasks' reads go through the policy as usual. The waiting task is not part of the plan.

        Args:
            plan: what to run; its ``reloads`` are in the store already.

        Raises:
            Exception: a task failed; it becomes the cause of the reader's own error.
        """
        ...


def traced_rerun(open_store: Callable[[], Store], plan: Plan, rule: str) -> AbstractContextManager[None]:
    """``with traced_rerun(...)``: the rerun, or the request for it, is a span, if there are traces.

    Args:
        open_store: opens the session of the value that is missing.
        plan: what runs again.
        rule: that decided it, as file and line.
    """
    if not tracing.is_on():
        return nullcontext()
    from entrepot_io.tracing.spans import rerun_span

    return rerun_span(open_store(), [str(task) for task in plan.tasks], rule)


class LineageGraph:
    """Graph of tasks and objects from the lineage in the store.

    Args:
        open_store: any session of the scope.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store

    def maker(self, ref: ObjectRef) -> Task | None:
        """As :meth:`~entrepot_policy.recovery.planning.Graph.maker`."""
        recorded = lineage.read(self._open_store(), ref)
        return None if recorded is None else recorded.task

    def inputs(self, task: Task, output: ObjectRef) -> Sequence[ObjectRef] | None:
        """As :meth:`~entrepot_policy.recovery.planning.Graph.inputs`; None for incomplete records."""
        recorded = lineage.read(self._open_store(), output)
        if recorded is None or recorded.task != task or not recorded.complete:
            return None
        return recorded.inputs


def record_rerun(store: Store, ref: ObjectRef, max_reruns: int, *, shared: bool = False) -> int:
    """Count a rerun for an object, in the store: an orchestrator that reruns in other processes must not loop forever.

    Args:
        store: the session of the object.
        ref: the object.
        max_reruns: limit within a day.
        shared: whether one rerun serves all readers that miss this generation; then their requests count once.

    Returns:
        The number of earlier reruns if the limit is reached; else 0.
    """
    record = records.get(store, RERUNS + str(ref.id)) or {}
    count, last, generation = record.get("count"), record.get("last"), [ref.instance, ref.generation]
    recent = isinstance(last, (int, float)) and time.time() - last <= RERUN_WINDOW_SECONDS
    if not recent or not isinstance(count, int):
        count = 0
    elif shared and record.get("life") == generation:
        return 0
    if count >= max_reruns:
        return count
    records.put(store, RERUNS + str(ref.id), {"count": count + 1, "last": time.time(), "life": generation})
    return 0


@dataclass(frozen=True)
class Retry:
    """A policy's decision about a failed task.

    Attributes:
        again: whether to retry it.
        delay: seconds to wait before.
        rule: that decided, as file and line; empty: the default.
        reason: for display.
    """

    again: bool
    delay: float
    rule: str
    reason: str
