"""Deduplication for ``multiple_outputs``: Airflow pushes each entry of the task's dictionary, then the whole of it.

Each frame would thus be stored twice. So an entry that has been pushed is replaced in the dictionary by its value as
read from the store, which makes both share their bytes. This is done for such tasks only: none of the task's code runs
between pushing the entries and pushing the whole, while a value that a task pushed itself may have changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# State of the one task that this process runs at a time.
_multiple = False
_pushed: list[tuple[str, Any, Any]] = []  # (key, value, reference); reference is None if the value stayed inline


def begin(multiple: bool) -> None:
    """Reset the state for a task that begins.

    Args:
        multiple: whether it has ``multiple_outputs``.
    """
    global _multiple
    _multiple = multiple
    _pushed.clear()


def note(key: str | None, value: Any, reference: Any) -> None:
    """Record a pushed value.

    Args:
        key: key of the XCom.
        value: the task's value.
        reference: the reference stored in Airflow's database; None: the value itself is stored there.
    """
    if _multiple and key is not None:
        _pushed.append((key, value, reference))


def shared(value: Any, load: Callable[[Any], Any]) -> Any:
    """Return the value to write: a dictionary whose entries were just pushed gets them back as the store has them.

    Args:
        value: the value being pushed.
        load: returns the value of a reference.
    """
    if not _multiple or type(value) is not dict or len(_pushed) < len(value):
        return value
    last = _pushed[len(_pushed) - len(value) :]
    if any(key != was or one is not it for (key, one), (was, it, _) in zip(value.items(), last, strict=True)):
        return value
    _pushed.clear()
    return {key: load(kept) if kept is not None else one for key, one, kept in last}
