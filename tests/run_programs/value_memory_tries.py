"""Work that makes values in the store, repeated while the store refuses memory, as it may on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from entrepot import _core

Result = TypeVar("Result")


def until_nothing_is_refused(work: Callable[[], Result]) -> tuple[Result, int]:
    """Return the result of the work, and how many values it sealed where they were made.

    Raises:
        AssertionError: the store has refused memory for a minute.
    """
    end = time.monotonic() + 60
    while time.monotonic() < end:
        before = _core.value_memory()
        result = work()
        after = _core.value_memory()
        if after["refused"] == before["refused"]:
            return result, after["sealed"] - before["sealed"]
        del result
        time.sleep(0.3)  # longer than the first refusal lasts; the store sends no sign that it has memory again
    raise AssertionError(_core.value_memory())
