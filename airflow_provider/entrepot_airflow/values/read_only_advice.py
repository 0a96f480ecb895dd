"""Advice on which setting helps a task that tried to write to a read-only input; added as a callback to every task.

A listener would also be informed, but Airflow does less for tasks of a deployment that has listeners.
"""

from __future__ import annotations

from typing import Any

from entrepot_io.plain_log import plain_logger

log = plain_logger(__name__)
COPY_SETTING = "as [entrepot] copy = on_write in Airflow's configuration, or as ENTREPOT_COPY"
_gave_read_only = False  # whether this process gave a read-only value to a task


def record_read_only_value() -> None:
    """Record that a task was given a read-only value."""
    global _gave_read_only
    _gave_read_only = True


def add_callbacks(task: Any) -> None:
    """Make a task that is about to run call :func:`explain` if it fails, after its own callbacks."""
    for kind in ("on_failure_callback", "on_retry_callback"):
        existing = getattr(task, kind, None)
        callbacks = [] if existing is None else list(existing) if isinstance(existing, (list, tuple)) else [existing]
        if explain not in callbacks:
            setattr(task, kind, [*callbacks, explain])


def explain(context: Any) -> None:
    """Write to the task's log what helps, if it failed by writing to read-only memory."""
    if not _gave_read_only:
        return
    from entrepot_io.read_only_errors import advice, is_read_only_error

    error = context.get("exception")
    if isinstance(error, BaseException) and is_read_only_error(error):
        log.error("%s", advice(COPY_SETTING))
