"""Deduplication for ``multiple_outputs``: Airflow pushes each entry of the task's dictionary, then the whole of it.

Each frame would thus be stored twice. So an entry that has been pushed is replaced in the dictionary by its value as
read from the store, which makes both share their bytes. This is done for such tasks only: none of the task's code runs
between pushing the entries and pushing the whole, while a value that a task pushed itself may have changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# State of the one task that this process runs at a time.
_enabled = False
_pushed: list[tuple[str, Any, Any]] = []  # (key, value, reference); reference is None if the value stayed inline


def begin_task(enabled: bool) -> None:
    """Reset the state for a task that begins.

    Args:
        enabled: whether it has ``multiple_outputs``.
    """
    global _enabled
    _enabled = enabled
    _pushed.clear()


def record_push(key: str | None, value: Any, reference: Any) -> None:
    """Record a pushed value.

    Args:
        key: key of the XCom.
        value: the task's value.
        reference: the reference stored in Airflow's database; None: the value itself is stored there.
    """
    if _enabled and key is not None:
        _pushed.append((key, value, reference))


def deduplicate(value: Any, load: Callable[[Any], Any]) -> Any:
    """Return the value to write: a dictionary whose entries were just pushed gets them back as the store has them.

    Args:
        value: the value being pushed.
        load: returns the value of a reference.
    """
    if not _enabled or type(value) is not dict or len(_pushed) < len(value):
        return value
    recent = _pushed[len(_pushed) - len(value) :]
    if any(
        key != pushed_key or entry is not pushed_value
        for (key, entry), (pushed_key, pushed_value, _) in zip(value.items(), recent, strict=True)
    ):
        return value
    _pushed.clear()
    return {key: load(reference) if reference is not None else entry for key, entry, reference in recent}
