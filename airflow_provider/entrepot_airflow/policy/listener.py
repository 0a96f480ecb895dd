"""Listener for events of tasks and runs. Recovering values does not depend on it: that happens on reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from entrepot.errors import EntrepotError
from entrepot_io.plain_log import plain_logger

from entrepot_airflow.compat.components import is_job, is_task_runner
from entrepot_airflow.policy import task_attempts
from entrepot_airflow.policy.policy_runtime import runtime, validated_policy
from entrepot_airflow.policy.rerun_service import RERUN_SERVICE
from entrepot_airflow.policy.task_attempts import effective_try_number, match_attributes, task_of

if TYPE_CHECKING:
    from entrepot_policy import PolicyRuntime

log = plain_logger(__name__)


@hookimpl
def on_starting(component: Any) -> None:
    """Start the rerun service with the scheduler."""
    if is_job(component):
        RERUN_SERVICE.thread.start(component)


@hookimpl
def before_stopping(component: Any) -> None:
    """Stop the rerun service with the scheduler; flush checkpoints of a task's process, which skips atexit handlers."""
    if is_job(component):
        RERUN_SERVICE.thread.stop()
    elif is_task_runner(component):
        policy = _policy()
        # The task's state has been reported already, so its successors do not wait for this.
        if policy is not None and not policy.checkpoints.flush():
            log.warning("Entrepot: some checkpoints were not written in time; the end of the run finalizes them")


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Record a task's success: its duration counts for the cost of recomputing its outputs."""
    attempt = task_attempts.last_attempt()
    if attempt is not None and attempt.task == task_of(task_instance):
        task_attempts.record_success(attempt)


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Count a failed task; runs in its own process or, if it was killed before its last try, in the scheduler's."""
    policy = _policy()
    if policy is None:
        return
    task, attempt = task_of(task_instance), task_attempts.last_attempt()
    own_attempt = attempt if attempt is not None and attempt.task == task and attempt.ti is task_instance else None
    if own_attempt is not None and own_attempt.failure_recorded:
        return
    if own_attempt is not None:
        number, max_tries = task_instance.try_number, getattr(task_instance, "max_tries", 0)
        policy.task_failed(
            own_attempt.run.subject, effective_try_number(number, max_tries, task_instance.task.retries), error
        )
        own_attempt.failure_recorded = True
        return
    from entrepot_policy import Subject

    # The scheduler's process does not talk to the store: it only records what happened.
    rule = policy.failover.rule("task_failed", Subject(task, **match_attributes(task_instance)))
    text = f"attempt {task_instance.try_number}: {error}"
    policy.log.add("task_failed", of=task, rule=rule.location.short, text=text)


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """Have a run that succeeded finalized."""
    _queue_finalization(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """Have a run that failed finalized."""
    _queue_finalization(dag_run)


def _queue_finalization(dag_run: Any) -> None:
    try:
        policy = validated_policy()
    except EntrepotError as error:
        log.error("Entrepot: cannot finalize %s: %s", dag_run.run_id, error)
        return
    if policy is not None and any(rule.mode == "async" or rule.keep for rule in policy.checkpoints):
        RERUN_SERVICE.queue_finalization(dag_run.dag_id, dag_run.run_id)


def _policy() -> PolicyRuntime | None:
    try:
        return runtime()
    except EntrepotError as error:
        log.error("Entrepot: %s", error)
        return None
