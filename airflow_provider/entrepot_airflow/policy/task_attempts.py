"""The task instance attempt that this process runs, as the policy sees it.

Airflow reads inputs while it renders a task's arguments, and pushes the result after the task's context is gone, so the
task instance is what identifies the attempt.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from entrepot_io.keys import UNMAPPED
from entrepot_io.plain_log import plain_logger
from entrepot_policy import PolicyRuntime, Task
from entrepot_policy.runtime import TaskRun
from entrepot_policy.state.events import Event

from entrepot_airflow.xcom_key import XComKey

log = plain_logger(__name__)
ORCHESTRATOR = "airflow"
MAX_EVENTS = 32  # maximum number of events that an attempt keeps
# Level at which events are written to the task's log; default: WARNING.
_LEVELS = {
    "checkpoint_written": logging.INFO,
    "reloaded": logging.INFO,
    "reread": logging.INFO,
    "evicted": logging.INFO,
    "rerun_planned": logging.INFO,
    "recovered": logging.INFO,
    "retried": logging.INFO,
    "checkpoint_skipped": logging.DEBUG,
    "checkpoint_pruned": logging.DEBUG,
    "object_dropped": logging.INFO,
    "droppable": logging.DEBUG,
    "not_droppable": logging.DEBUG,
}
_ROUTINE_EVENTS = frozenset(
    {"checkpoint_written", "checkpoint_skipped", "checkpoint_pruned", "droppable", "not_droppable"}
)


@dataclass
class Attempt:
    """One attempt of a task instance.

    Attributes:
        task: the task instance, as plans identify it.
        run: the task run that reads and writes its values.
        ti: Airflow's task instance; None: the backend was called with names only.
        recent_events: its most recent events.
        checkpoint_events: events of checkpoints that it wrote, by object ID.
        failure_recorded: whether its failure is already in the event log.
    """

    task: Task
    run: TaskRun
    ti: Any = None
    recent_events: list[Event] = field(default_factory=list[Event])
    checkpoint_events: dict[str, Event] = field(default_factory=dict[str, Event])
    failure_recorded: bool = False


_lock = threading.Lock()
_thread_state = threading.local()  # .attempt: the attempt for which this thread writes values
# (key that identifies the attempt, last attempt begun)
_last_attempt: tuple[object, Attempt] | None = None  # guarded by _lock


def task_name(task_id: str, map_index: int | None) -> str:
    """Name a task instance within its run: ``train``, or ``train[3]``."""
    return task_id if map_index is None or map_index == UNMAPPED else f"{task_id}[{map_index}]"


def task_of(ti: Any) -> Task:
    """Return the task for an Airflow task instance, from the task's process or from the database."""
    return Task(ORCHESTRATOR, ti.dag_id, ti.run_id, task_name(ti.task_id, ti.map_index))


def instance_of(task: Task) -> tuple[str, int]:
    """Return task ID and map index from a :func:`task_name`."""
    head, bracket, index = task.name.rpartition("[")
    if bracket and index.endswith("]") and index[:-1].isdigit():
        return head, int(index[:-1])
    return task.name, UNMAPPED


def effective_try_number(try_number: int, max_tries: int, retries: int) -> int:
    """Return the number of this attempt, from 1, not counting attempts that did not fail.

    Airflow allows one more attempt for each that was not a failure: one rescheduled to run after others, or cleared by
    a user.

    Args:
        try_number: number of the attempt, from 1.
        max_tries: Airflow's current limit.
        retries: the task's configured retries.
    """
    return max(1, try_number - max(0, max_tries - retries))


def match_attributes(ti: Any) -> dict[str, Any]:
    """Return what rules can match besides the task's name: the DAG's tags, its asset, the number of readers."""
    task = getattr(ti, "task", None)
    if task is None:
        return {}
    dag = getattr(task, "dag", None)
    outlets = [name for outlet in getattr(task, "outlets", None) or () if (name := getattr(outlet, "name", None))]
    return {
        "tags": frozenset(str(tag) for tag in getattr(dag, "tags", None) or ()),
        "asset": str(outlets[0]) if len(outlets) == 1 else "",
        "fan_out": len(task.downstream_task_ids),
    }


def begin_attempt(runtime: PolicyRuntime, ti: Any) -> Attempt:
    """Return the attempt of a task instance; the same one until another begins."""
    global _last_attempt
    key = (str(ti.id), ti.try_number, str(getattr(ti, "start_date", None)))
    with _lock:
        if _last_attempt is None or _last_attempt[0] != key:
            task = task_of(ti)
            run = runtime.task(task, **match_attributes(ti))
            run.__enter__()
            _last_attempt = (key, Attempt(task, run, ti))
        return _last_attempt[1]


def current_attempt(runtime: PolicyRuntime) -> Attempt | None:
    """Return the attempt whose code is running here; None: not within a task."""
    from airflow.sdk import get_current_context

    try:
        context: Any = get_current_context()
    except RuntimeError:
        return None
    return begin_attempt(runtime, context["ti"])


def last_attempt() -> Attempt | None:
    """Return the attempt that was begun last in this process, even if it is over."""
    with _lock:
        return None if _last_attempt is None else _last_attempt[1]


def writing_attempt(runtime: PolicyRuntime, xcom_key: XComKey) -> Attempt:
    """Return the attempt that pushes an XCom; a new one without known inputs if it is not this process's attempt."""
    task = Task(
        ORCHESTRATOR,
        xcom_key.dag_id or "",
        xcom_key.run_id or "",
        task_name(xcom_key.task_id or "", xcom_key.map_index),
    )
    attempt = current_attempt(runtime) or last_attempt()
    return attempt if attempt is not None and attempt.task == task else Attempt(task, runtime.task(task))


def record_success(attempt: Attempt) -> None:
    """Record that an attempt succeeded, so that its duration counts."""
    attempt.run.__exit__(None, None, None)


@contextmanager
def attribute_events(attempt: Attempt) -> Iterator[None]:
    """Attribute this thread's events to an attempt, whether it is this process's or not."""
    previous = getattr(_thread_state, "attempt", None)
    _thread_state.attempt = attempt
    try:
        yield
    finally:
        _thread_state.attempt = previous


def record_event(event: Event) -> None:
    """Write an event to the task's log, and keep it for what the attempt writes next."""
    log.log(_LEVELS.get(event.kind, logging.WARNING), "Entrepot: %s", event)
    attempt = getattr(_thread_state, "attempt", None) or last_attempt()
    if attempt is None:
        return
    if event.kind == "checkpoint_written":
        attempt.checkpoint_events[event.object] = event
    elif event.kind not in _ROUTINE_EVENTS:
        attempt.recent_events.append(event)
        del attempt.recent_events[:-MAX_EVENTS]


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
