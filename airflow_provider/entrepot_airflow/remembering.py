"""What the attempts of one task instance tell each other, in Airflow's task state store where there is one (from 3.3).

An attempt's XComs are gone when the next one begins, and its memory with its process; the state store stays.
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
    """Note the last checkpoint of what a task wrote.

    Args:
        attempt: that wrote it.
        reference: of the value.
        url: of the checkpoint.
    """
    said = {"object": str(reference.id), "key": reference.key, "generation": reference.generation, "url": url}
    _set(attempt, CHECKPOINT, said)


def last_checkpoint(context: Any) -> dict[str, Any] | None:
    """The last checkpoint that an earlier attempt of this task wrote; None: none did, or Airflow is older than 3.3.

    Args:
        context: the task's.

    Returns:
        ``object`` (its ID), ``key``, ``generation`` and ``url``, as ``entrepot load`` takes it.
    """
    states = context.get("task_state_store")
    found = None if states is None else states.get(CHECKPOINT)
    return found if isinstance(found, dict) else None


def remember(attempt: Attempt, line: str) -> None:
    """Keep a line about what befell this attempt for the ones after it."""
    _set(attempt, FAILOVER, [*told(attempt, always=True), line][-MAX_KEPT:])


def told(attempt: Attempt, *, always: bool = False) -> list[str]:
    """What earlier attempts kept.

    Args:
        attempt: that asks.
        always: look even where there was no earlier attempt.
    """
    states = _states(attempt)
    if states is None or not (always or _had_earlier(attempt.ti)):
        return []
    try:
        found = states.get(FAILOVER)
    except Exception as error:  # whatever Airflow's client raises: this is a remark in an entry, not the value
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
    except Exception as error:  # the checkpoint itself is written and found without this note
        log.warning("The task state store does not take %r: %s", key, error)
