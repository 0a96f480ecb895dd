"""State shared between the attempts of a task instance, in Airflow's task state store if available (from 3.3).

An attempt's XComs are deleted when the next one begins, and its memory ends with its process; the state store persists.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from entrepot_io.reference import Reference

if TYPE_CHECKING:
    from entrepot_airflow.attempts import Attempt

log = logging.getLogger(__name__)
CHECKPOINT = "entrepot.checkpoint"
FAILOVER = "entrepot.failover"
MAX_KEPT = 8


def checkpoint(attempt: Attempt, reference: Reference, url: str) -> None:
    """Record the last checkpoint of what a task wrote.

    Args:
        attempt: the attempt that wrote it.
        reference: reference to the value.
        url: URL of the checkpoint.
    """
    said = {"object": str(reference.id), "key": reference.key, "generation": reference.generation, "url": url}
    _set(attempt, CHECKPOINT, said)


def last_checkpoint(context: Any) -> dict[str, Any] | None:
    """Return the last checkpoint that an earlier attempt of this task wrote; None: none did, or Airflow is below 3.3.

    Args:
        context: the task's context.

    Returns:
        ``object`` (its ID), ``key``, ``generation`` and ``url``, in the form that ``entrepot load`` expects.
    """
    states = context.get("task_state_store")
    found = None if states is None else states.get(CHECKPOINT)
    return found if isinstance(found, dict) else None


def remember(attempt: Attempt, line: str) -> None:
    """Keep a line about an event of this attempt for the attempts after it."""
    _set(attempt, FAILOVER, [*told(attempt, always=True), line][-MAX_KEPT:])


def told(attempt: Attempt, *, always: bool = False) -> list[str]:
    """Return the lines kept by earlier attempts.

    Args:
        attempt: the current attempt.
        always: look even if there was no earlier attempt.
    """
    states = _states(attempt)
    if states is None or not (always or _had_earlier(attempt.ti)):
        return []
    try:
        found = states.get(FAILOVER)
    except Exception as error:  # Airflow's client may raise anything; this is only a remark in an entry, not the value
        log.warning("What earlier attempts told cannot be read: %s", error)
        return []
    return [str(line) for line in found] if isinstance(found, list) else []


def _had_earlier(ti: Any) -> bool:
    told_by_server = getattr(ti, "_ti_context_from_server", None)
    return ti.try_number > 1 or bool(getattr(told_by_server, "task_reschedule_count", 0))


def _states(attempt: Attempt) -> Any:
    if attempt.ti is None or not hasattr(attempt.ti, "get_template_context"):
        return None
    return attempt.ti.get_template_context().get("task_state_store")


def _set(attempt: Attempt, key: str, value: Any) -> None:
    states = _states(attempt)
    if states is None:
        return
    try:
        states.set(key, value)
    except Exception as error:  # the checkpoint itself is written, and found without this note
        log.warning("The task state store does not take %r: %s", key, error)
