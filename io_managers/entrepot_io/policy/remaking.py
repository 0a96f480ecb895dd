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

from entrepot import parts
from entrepot.errors import EntrepotError
from entrepot.ids import ObjectID

from entrepot_io.policy import lineage
from entrepot_io.policy.events import EventLog
from entrepot_io.policy.lineage import Lineage
from entrepot_io.policy.model import MemoryRule
from entrepot_io.policy.subject import Subject, Task

if TYPE_CHECKING:
    from entrepot import Store

MOST_OBJECTS = 256  # visited for one value


@dataclass(frozen=True)
class Remake:
    """Cost of recomputing a value.

    Attributes:
        seconds: of all tasks that may have to run.
        tasks: number of these tasks.
    """

    seconds: float
    tasks: int


class CannotRemake(Exception):
    """A value cannot be recomputed with certainty; the message says why."""


def remake(
    store: Store,
    own: Lineage,
    may_rerun: Callable[[Subject], str],
    *,
    overhead: float,
    most_tasks: int,
) -> Remake:
    """Cost of recomputing a value if nothing that it descends from exists any more.

    Values in checkpoints count as recomputed, although loading them takes less; their tasks must be known as well.

    Args:
        store: the session of the value.
        own: its lineage.
        may_rerun: why the task that made something must not run again; empty: it may.
        overhead: seconds that rerunning a task takes in addition to its own time.
        most_tasks: limit on the tasks of a rerun.

    Raises:
        CannotRemake: a task is unknown, belongs to another run, or must not run again; or there are too many.
        StoreUnavailable: the store cannot be reached.
        CorruptData: a record cannot be read.
    """
    if not own.complete:
        raise CannotRemake(f"it has more than {lineage.MAX_INPUTS} inputs")
    seconds: dict[Task, float] = {own.task: own.seconds}
    tasks: set[Task] = {own.task}
    seen: set[ObjectID] = set()
    waiting = list(own.inputs)
    while waiting:
        ref = waiting.pop()
        if ref.id in seen:
            continue
        seen.add(ref.id)
        if len(seen) > MOST_OBJECTS:
            raise CannotRemake(f"it descends from more than {MOST_OBJECTS} values")
        known = lineage.read(store, ref)
        if known is None or not known.complete:
            raise CannotRemake(f"nobody knows how {ref}, from which it descends, was made")
        if _run_of(known.task) != _run_of(own.task) or ref.session != own.output.session:
            raise CannotRemake(f"{ref}, from which it descends, is of another run")
        if why := may_rerun(known.subject()):
            raise CannotRemake(f"{known.task}, from which it descends, must not run again: {why}")
        tasks.add(known.task)
        if len(tasks) > most_tasks:
            raise CannotRemake(f"more than {most_tasks} tasks might have to run again (max_tasks)")
        if not known.checkpointed:
            seconds[known.task] = max(known.seconds, seconds.get(known.task, 0.0))
        waiting.extend(known.inputs)
    return Remake(sum(seconds.values()) + overhead * len(seconds), len(seconds))


def allow_drop(
    store: Store,
    rule: MemoryRule,
    subject: Subject,
    own: Lineage,
    log: EventLog,
    *,
    may_rerun: Callable[[str, Subject], str],
    overhead: float,
    most_tasks: int,
    waits_for_checkpoint: bool,
) -> None:
    """If a rule wants it and it is certain to work, declare a value recomputable to the store; log either outcome.

    Args:
        store: the session of the value.
        rule: of the policy, with ``recompute``.
        subject: the value.
        own: its lineage, which is in the store.
        log: receives the outcome.
        may_rerun: why, on an event, the task that made something must not run again; empty: it may.
        overhead, most_tasks: as for :func:`remake`.
        waits_for_checkpoint: whether the value must still be read in order to checkpoint it.
    """
    ref = own.output

    def tell(kind: str, text: str) -> None:
        log.add(kind, of=own.task, object=str(ref.id), key=ref.key, rule=rule.mark.short, text=text)

    if subject.nbytes is not None and subject.nbytes <= parts.SMALL_BYTES:
        return  # part of a record, which never leaves memory
    try:
        if store.durable is not None:
            raise CannotRemake("the session is durable, so it has a copy of its own")
        if waits_for_checkpoint:
            raise CannotRemake("its asynchronous checkpoint is not written yet")
        if why := may_rerun("object_dropped", subject):
            raise CannotRemake(f"its task must not run again: {why}")
        needed = remake(
            store,
            own,
            lambda one: may_rerun("object_lost", one),
            overhead=overhead,
            most_tasks=most_tasks,
        )
        store.hint(ref.id, recompute_seconds=needed.seconds)
    except CannotRemake as error:
        tell("not_droppable", str(error))
    except EntrepotError as error:  # unchanged: it is never dropped
        tell("not_droppable", f"the store was not told: {error}")
    else:
        tell("droppable", f"making it again takes {needed.seconds:.3g} s, {needed.tasks} tasks at most")


def _run_of(task: Task) -> tuple[str, str, str]:
    return task.host, task.pipeline, task.run
