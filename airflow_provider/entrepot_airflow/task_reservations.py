"""Listener that reserves memory in the store for what a task is going to pass on: the option ``reserve``."""

from __future__ import annotations

from typing import Any

from airflow.listeners import hookimpl
from entrepot_io.task_reservations import TaskReservation, begin_task

from entrepot_airflow.configuration import current_settings, default_scope

_current: TaskReservation | None = None  # of the task that this process runs; used by the thread that runs it


@hookimpl
def on_task_instance_running(previous_state: Any, task_instance: Any) -> None:
    """Wait for the reservation in the task's process, before its code runs.

    Raises:
        InvalidArgument: a setting is malformed.
    """
    global _current
    _end(succeeded=False)  # of a task that was skipped or deferred, where one process runs several
    settings = current_settings()
    scope = settings.scope or default_scope()
    _current = begin_task(settings, scope, task_instance.dag_id, task_instance.task_id)


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Release it once the task's values are stored."""
    _end(succeeded=True)


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Release it. In the scheduler's process, for a task that was killed, there is none: it ended with its process."""
    _end(succeeded=False)


def _end(*, succeeded: bool) -> None:
    global _current
    ended, _current = _current, None
    if ended is not None:
        ended.end(succeeded=succeeded)
