"""Names the setting that helps a task which wrote into what it got; a callback of every task, where the task runs.

A listener would be told too, but Airflow does less for tasks of a deployment that has listeners.
"""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger(__name__)
WHERE = "as [entrepot] copy = on_write in Airflow's configuration, or as ENTREPOT_COPY"
_got = False  # whether this process handed a read-only value to a task


def got() -> None:
    """A task got a value that it may not write into."""
    global _got
    _got = True


def watch(task: Any) -> None:
    """Have a task that begins here call :func:`explain` if it fails, after its own callbacks."""
    for kind in ("on_failure_callback", "on_retry_callback"):
        had = getattr(task, kind, None)
        callbacks = [] if had is None else list(had) if isinstance(had, (list, tuple)) else [had]
        if explain not in callbacks:
            setattr(task, kind, [*callbacks, explain])


def explain(context: Any) -> None:
    """Say in the task's log what helps, if it failed by writing into memory that is read-only."""
    if not _got:
        return
    from entrepot_io.read_only import advice, is_read_only

    error = context.get("exception")
    if isinstance(error, BaseException) and is_read_only(error):
        log.error("%s", advice(WHERE))
