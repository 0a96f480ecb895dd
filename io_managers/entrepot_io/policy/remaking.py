"""Whether a value can be made again, and what that takes: so that the store may drop it instead of moving it to disk.

The store knows nothing of lineage. It drops what it was told can be made again, at any time until the session ends, so
the answer must not become wrong meanwhile. It does not, because nothing is asked of the inputs: every task that the
value descends from has to be one that may run again, down to tasks without inputs, and the records that say so go with
the same session. Whatever of it is deleted, dropped or lost later, the plan of a rerun goes as far up as it must.
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

MOST_OBJECTS = 256  # that are looked at for one value


@dataclass(frozen=True)
class Remake:
    """What making a value again takes.

    Attributes:
        seconds: of all tasks that may have to run.
        tasks: how many these are.
    """

    seconds: float
    tasks: int


class CannotRemake(Exception):
    """A value is not sure to come back; the message says why."""


def remake(
    store: Store,
    own: Lineage,
    may_rerun: Callable[[Subject], str],
    *,
    overhead: float,
    most_tasks: int,
) -> Remake:
    """What it takes to make a value again if nothing of what it descends from is there any more.

    Values in checkpoints count as there: they are loaded, which takes less; but their tasks have to be known as well.

    Args:
        store: the session of the value.
        own: its lineage.
        may_rerun: why the task that made something must not run again; empty: it may.
        overhead: seconds that having a task run again takes beside its own.
        most_tasks: that a rerun may have.

    Raises:
        CannotRemake: a task is not known, of another run, or must not run again; or there are more.
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
    """Tell the store what making a value again takes, if a rule wants that and it is sure to work; both are logged.

    Args:
        store: the session of the value.
        rule: of the policy, with ``recompute``.
        subject: the value.
        own: its lineage, which is in the store.
        log: told of it.
        may_rerun: why, on an event, the task that made something must not run again; empty: it may.
        overhead, most_tasks: as for :func:`remake`.
        waits_for_checkpoint: whether somebody has yet to read the value, to write it down.
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
    except EntrepotError as error:  # it stays what it was: never dropped
        tell("not_droppable", f"the store was not told: {error}")
    else:
        tell("droppable", f"making it again takes {needed.seconds:.3g} s, {needed.tasks} tasks at most")


def _run_of(task: Task) -> tuple[str, str, str]:
    return task.host, task.pipeline, task.run
