"""A task with ``multiple_outputs``: Airflow pushes each entry of its dictionary, and then the dictionary as a whole.

So each frame would be in the store twice. What was pushed for an entry is put into the dictionary in the entry's place,
as the store gives it: its bytes are shared then. That is done for such tasks alone: between the pushes of entries and
whole no code of the task runs, while of a value that a task pushed itself nobody knows whether it was changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Of the one task that this process runs at a time.
_multiple = False
_pushed: list[tuple[str, Any, Any]] = []  # key, value, and what stands for it; None: it stayed inline


def begin(multiple: bool) -> None:
    """A task begins.

    Args:
        multiple: whether it has ``multiple_outputs``.
    """
    global _multiple
    _multiple = multiple
    _pushed.clear()


def note(key: str | None, value: Any, reference: Any) -> None:
    """What was pushed.

    Args:
        key: of the XCom.
        value: the task's.
        reference: that stands for it in Airflow's database; None: it stands there itself.
    """
    if _multiple and key is not None:
        _pushed.append((key, value, reference))


def shared(value: Any, load: Callable[[Any], Any]) -> Any:
    """The value to write: a dictionary whose entries were just pushed, with them as the store has them.

    Args:
        value: that is pushed.
        load: gives the value that a reference stands for.
    """
    if not _multiple or type(value) is not dict or len(_pushed) < len(value):
        return value
    last = _pushed[len(_pushed) - len(value) :]
    if any(key != was or one is not it for (key, one), (was, it, _) in zip(value.items(), last, strict=True)):
        return value
    _pushed.clear()
    return {key: load(kept) if kept is not None else one for key, one, kept in last}
