"""Listener for events of tasks and runs. Recovering values does not depend on it: that happens on reading."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from entrepot.errors import EntrepotError

from entrepot_airflow import attempts
from entrepot_airflow.attempts import said_of, task_of
from entrepot_airflow.clerk import CLERK
from entrepot_airflow.retrying import counted
from entrepot_airflow.runtimes import checked, runtime

if TYPE_CHECKING:
    from entrepot_io.policy import PolicyRuntime

log = logging.getLogger(__name__)


@hookimpl
def on_starting(component: Any) -> None:
    """Start the clerk with the scheduler."""
    if type(component).__name__ == "Job":
        CLERK.thread.start(component)


@hookimpl
def before_stopping(component: Any) -> None:
    """Stop the clerk with the scheduler; flush checkpoints of a task's process, which exits without atexit handlers."""
    if type(component).__name__ == "Job":
        CLERK.thread.stop()
    elif type(component).__name__ == "TaskRunnerMarker":
        policy = _policy()
        # The task's state has been reported already, so its successors do not wait for this.
        if policy is not None and not policy.checkpoints.flush():
            log.warning("Entrepot: not all checkpoints were written in time; the run's end sees to them")


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Record a task's success: its duration counts for the cost of recomputing its outputs."""
    attempt = attempts.last()
    if attempt is not None and attempt.task == task_of(task_instance):
        attempts.ended(attempt)


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Count a failed task; runs in its own process or, if it was killed before its last try, in the scheduler's."""
    policy = _policy()
    if policy is None:
        return
    task, attempt = task_of(task_instance), attempts.last()
    own = attempt if attempt is not None and attempt.task == task and attempt.ti is task_instance else None
    if own is not None and own.failure_told:
        return
    if own is not None:
        number, most = task_instance.try_number, getattr(task_instance, "max_tries", 0)
        policy.task_failed(own.run.subject, counted(number, most, task_instance.task.retries), error)
        own.failure_told = True
        return
    from entrepot_io.policy import Subject

    # The scheduler's process does not talk to the store: it only records what happened.
    rule = policy.failover.rule("task_failed", Subject(task, **said_of(task_instance)))
    text = f"attempt {task_instance.try_number}: {error}"
    policy.log.add("task_failed", of=task, rule=rule.mark.short, text=text)


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """Have a run that succeeded finalized."""
    _run_ended(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """Have a run that failed finalized."""
    _run_ended(dag_run)


def _run_ended(dag_run: Any) -> None:
    try:
        policy = checked()
    except EntrepotError as error:
        log.error("Entrepot: the end of %s is not settled: %s", dag_run.run_id, error)
        return
    if policy is not None and any(rule.mode == "async" or rule.keep for rule in policy.checkpoints):
        CLERK.run_ended(dag_run.dag_id, dag_run.run_id)


def _policy() -> PolicyRuntime | None:
    try:
        return runtime()
    except EntrepotError as error:
        log.error("Entrepot: %s", error)
        return None
