"""What a host has to offer so that a policy can have tasks run again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from entrepot_io.policy import lineage, records
from entrepot_io.policy.lineage import ObjectRef
from entrepot_io.policy.planning import Plan
from entrepot_io.policy.subject import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from entrepot import Store

RERUNS = "entrepot.reruns/"
RERUN_WINDOW_SECONDS = 86400.0


@runtime_checkable
class Rerunner(Protocol):
    """Runs tasks again from within the task that misses their outputs.

    A host that can do that (Kedro, whose nodes are functions of this process; Dagster, by a run of its own that is
    waited for) gives one to :class:`~entrepot_io.policy.runtime.PolicyRuntime`. A host that cannot (Airflow, which
    clears upstream tasks and lets the reader wait in its queue) gives none, catches
    :class:`~entrepot_io.policy.planning.RerunNeeded`, and does what its plan says.
    """

    def rerun(self, plan: Plan, /) -> None:
        """Run the plan's tasks, in its order, and return when all have ended well.

        What the tasks read goes through the policy as ever. The task that waits here is not part of the plan.

        Args:
            plan: what to run; its ``reloads`` are in the store already.

        Raises:
            Exception: a task failed; the reader gets it as the cause of its own error.
        """
        ...


class StoreGraph:
    """Who made what, as the store's lineage tells it.

    Args:
        open_store: any session of the scope.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store

    def maker(self, ref: ObjectRef) -> Task | None:
        """As :meth:`~entrepot_io.policy.planning.Graph.maker`."""
        known = lineage.read(self._open_store(), ref)
        return None if known is None else known.task

    def inputs(self, task: Task, output: ObjectRef) -> Sequence[ObjectRef] | None:
        """As :meth:`~entrepot_io.policy.planning.Graph.inputs`; what a record left out is not known."""
        known = lineage.read(self._open_store(), output)
        if known is None or known.task != task or not known.complete:
            return None
        return known.inputs


def made_again(store: Store, ref: ObjectRef, most: int, *, shared: bool = False) -> int:
    """Count a rerun because of an object, in the store: a host that reruns by other processes must not go round.

    Args:
        store: the session of the object.
        ref: the object.
        most: how often within a day.
        shared: whether one rerun serves all readers that miss this life of it; then their asking counts once.

    Returns:
        How often it was made again already, where that is too often; else 0.
    """
    said = records.get(store, RERUNS + str(ref.id)) or {}
    count, last, life = said.get("count"), said.get("last"), [ref.instance, ref.generation]
    recent = isinstance(last, (int, float)) and time.time() - last <= RERUN_WINDOW_SECONDS
    if not recent or not isinstance(count, int):
        count = 0
    elif shared and said.get("life") == life:
        return 0
    if count >= most:
        return count
    records.put(store, RERUNS + str(ref.id), {"count": count + 1, "last": time.time(), "life": life})
    return 0


@dataclass(frozen=True)
class Retry:
    """What a policy says about a task that failed.

    Attributes:
        again: whether it is tried again.
        delay: seconds to wait before.
        rule: that said so, as file and line; empty: the default.
        reason: in words.
    """

    again: bool
    delay: float
    rule: str
    reason: str
