"""State shared between the attempts of a task instance, in Airflow's task state store if available (from 3.3).

An attempt's XComs are deleted when the next one begins, and its memory ends with its process; the state store persists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot_io.plain_log import plain_logger
from entrepot_io.reference import Reference

from entrepot_airflow.compat.task_process import reschedule_count

if TYPE_CHECKING:
    from entrepot_airflow.policy.task_attempts import Attempt

log = plain_logger(__name__)
CHECKPOINT_KEY = "entrepot.checkpoint"
FAILOVER_KEY = "entrepot.failover"
MAX_HISTORY = 8


def record_checkpoint(attempt: Attempt, reference: Reference, url: str) -> None:
    """Record the last checkpoint of what a task wrote.

    Args:
        attempt: the attempt that wrote it.
        reference: reference to the value.
        url: URL of the checkpoint.
    """
    record = {"object": str(reference.id), "key": reference.key, "generation": reference.generation, "url": url}
    _set(attempt, CHECKPOINT_KEY, record)


def last_checkpoint(context: Any) -> dict[str, Any] | None:
    """Return the last checkpoint that an earlier attempt of this task wrote; None: none did, or Airflow is below 3.3.

    Args:
        context: the task's context.

    Returns:
        ``object`` (its ID), ``key``, ``generation`` and ``url``, in the form that ``entrepot load`` expects.

    >>> last_checkpoint({})  # the context of a task whose earlier attempts wrote none
    """
    state_store = context.get("task_state_store")
    record = None if state_store is None else state_store.get(CHECKPOINT_KEY)
    return record if isinstance(record, dict) else None


def append_history(attempt: Attempt, line: str) -> None:
    """Keep a line about an event of this attempt for the attempts after it."""
    _set(attempt, FAILOVER_KEY, [*history(attempt, always=True), line][-MAX_HISTORY:])


def history(attempt: Attempt, *, always: bool = False) -> list[str]:
    """Return the lines kept by earlier attempts.

    Args:
        attempt: the current attempt.
        always: look even if there was no earlier attempt.
    """
    state_store = _state_store(attempt)
    if state_store is None or not (always or _had_earlier_attempt(attempt.ti)):
        return []
    try:
        lines = state_store.get(FAILOVER_KEY)
    except Exception as error:  # Airflow's client may raise anything; this is only a remark in an entry, not the value
        log.warning("Entrepot: cannot read the events of earlier attempts: %s", error)
        return []
    return [str(line) for line in lines] if isinstance(lines, list) else []


def _had_earlier_attempt(ti: Any) -> bool:
    return ti.try_number > 1 or reschedule_count(ti) > 0


def _state_store(attempt: Attempt) -> Any:
    if attempt.ti is None or not hasattr(attempt.ti, "get_template_context"):
        return None
    return attempt.ti.get_template_context().get("task_state_store")


def _set(attempt: Attempt, key: str, value: Any) -> None:
    state_store = _state_store(attempt)
    if state_store is None:
        return
    try:
        state_store.set(key, value)
    except Exception as error:  # the checkpoint itself is written, and found without this note
        log.warning("Entrepot: cannot write %r to the task state store: %s", key, error)
