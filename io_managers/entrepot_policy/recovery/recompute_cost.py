"""Determines whether a value can be recomputed, and at what cost, so that the store may drop instead of spill it.

The store knows nothing of lineage. It drops values declared recomputable at any time until the session ends, so the
answer must not become wrong meanwhile. It cannot, because it does not depend on the inputs' survival: every task that
the value descends from must be allowed to run again, up to tasks without inputs, and the records that say so end with
the same session. Whatever is deleted, dropped or lost later, the plan of a rerun goes as far upstream as necessary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import EntrepotError
from entrepot.ids import ObjectID

from entrepot_policy.rules.match_target import Subject, Task
from entrepot_policy.rules.model import MemoryRule
from entrepot_policy.state import lineage
from entrepot_policy.state.events import EventLog
from entrepot_policy.state.lineage import Lineage

if TYPE_CHECKING:
    from entrepot import Store

MAX_OBJECTS = 256  # visited for one value


@dataclass(frozen=True)
class RecomputeCost:
    """Cost of recomputing a value.

    Attributes:
        seconds: of all tasks that may have to run.
        tasks: number of these tasks.
    """

    seconds: float
    tasks: int


class NotRecomputable(Exception):
    """A value cannot be recomputed with certainty; the message says why."""


def estimate_recompute_cost(
    store: Store,
    output_lineage: Lineage,
    rerun_refusal: Callable[[Subject], str],
    *,
    overhead: float,
    max_tasks: int,
) -> RecomputeCost:
    """Cost of recomputing a value if nothing that it descends from exists any more.

    Values in checkpoints count as recomputed, although loading them takes less; their tasks must be known as well.

    Args:
        store: the session of the value.
        output_lineage: its lineage.
        rerun_refusal: why the task that made something must not run again; empty: it may.
        overhead: seconds that rerunning a task takes in addition to its own time.
        max_tasks: limit on the tasks of a rerun.

    Raises:
        NotRecomputable: a task is unknown, belongs to another run, or must not run again; or there are too many.
        StoreUnavailable: the store cannot be reached.
        CorruptData: a record cannot be read.
    """
    if not output_lineage.complete:
        raise NotRecomputable(f"it has more than {lineage.MAX_INPUTS} inputs")
    seconds: dict[Task, float] = {output_lineage.task: output_lineage.seconds}
    tasks: set[Task] = {output_lineage.task}
    seen: set[ObjectID] = set()
    pending = list(output_lineage.inputs)
    while pending:
        ref = pending.pop()
        if ref.id in seen:
            continue
        seen.add(ref.id)
        if len(seen) > MAX_OBJECTS:
            raise NotRecomputable(f"it depends on more than {MAX_OBJECTS} values")
        ancestor = lineage.read(store, ref)
        if ancestor is None or not ancestor.complete:
            raise NotRecomputable(f"the lineage of {ref}, on which it depends, is not known")
        if _run_key(ancestor.task) != _run_key(output_lineage.task) or ref.session != output_lineage.output.session:
            raise NotRecomputable(f"{ref}, on which it depends, belongs to another run")
        if reason := rerun_refusal(ancestor.subject()):
            raise NotRecomputable(f"{ancestor.task}, on which it depends, must not be rerun: {reason}")
        tasks.add(ancestor.task)
        if len(tasks) > max_tasks:
            raise NotRecomputable(f"more than {max_tasks} tasks might have to be rerun (max_tasks)")
        if not ancestor.checkpointed:
            seconds[ancestor.task] = max(ancestor.seconds, seconds.get(ancestor.task, 0.0))
        pending.extend(ancestor.inputs)
    return RecomputeCost(sum(seconds.values()) + overhead * len(seconds), len(seconds))


def allow_drop(
    store: Store,
    rule: MemoryRule,
    subject: Subject,
    output_lineage: Lineage,
    log: EventLog,
    *,
    rerun_refusal: Callable[[str, Subject], str],
    overhead: float,
    max_tasks: int,
    waits_for_checkpoint: bool,
) -> None:
    """If a rule wants it and it is certain to work, declare a value recomputable to the store; log either outcome.

    Args:
        store: the session of the value.
        rule: of the policy, with ``recompute``.
        subject: the value.
        output_lineage: its lineage, which is in the store.
        log: receives the outcome.
        rerun_refusal: why, on an event, the task that made something must not run again; empty: it may.
        overhead, max_tasks: as for :func:`estimate_recompute_cost`.
        waits_for_checkpoint: whether the value must still be read in order to checkpoint it.
    """
    ref = output_lineage.output

    def log_outcome(kind: str, text: str) -> None:
        log.add(kind, of=output_lineage.task, object=str(ref.id), key=ref.key, rule=rule.location.short, text=text)

    if subject.nbytes is not None and subject.nbytes <= raw_objects.SMALL_BYTES:
        return  # part of a record, which never leaves memory
    try:
        if store.durable is not None:
            raise NotRecomputable("the session is durable, so the value already has a copy")
        if waits_for_checkpoint:
            raise NotRecomputable("its asynchronous checkpoint has not been written yet")
        if reason := rerun_refusal("object_dropped", subject):
            raise NotRecomputable(f"its task must not be rerun: {reason}")
        cost = estimate_recompute_cost(
            store,
            output_lineage,
            lambda ancestor: rerun_refusal("object_lost", ancestor),
            overhead=overhead,
            max_tasks=max_tasks,
        )
        store.hint(ref.id, recompute_seconds=cost.seconds)
    except NotRecomputable as error:
        log_outcome("not_droppable", str(error))
    except EntrepotError as error:  # unchanged: it is never dropped
        log_outcome("not_droppable", f"the store could not be notified: {error}")
    else:
        log_outcome("droppable", f"recomputing it takes {cost.seconds:.3g} s and at most {cost.tasks} tasks")


def _run_key(task: Task) -> tuple[str, str, str]:
    return task.orchestrator, task.pipeline, task.run
