"""Telling that a library closes a file because its ``with`` block failed.

``with fsspec.open(...)`` and pandas close their files in ``__exit__`` without passing on the exception, so that a file
that failed halfway would look complete.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

_LIBRARIES = frozenset({"fsspec.core", "pandas.io.common"})  # modules with such an `__exit__`
_MAX_FRAMES = 8  # between it and the file


def block_failed() -> bool:
    """Whether one of these libraries is calling because of an exception in its block."""
    error = sys.exc_info()[1]
    if error is None:
        return False
    frame = inspect.currentframe()
    for _ in range(_MAX_FRAMES):
        frame = frame.f_back if frame is not None else None
        if frame is None:
            return False
        if frame.f_code.co_name == "__exit__" and frame.f_globals.get("__name__") in _LIBRARIES:
            return _was_given(frame, error)
    return False


def _was_given(frame: FrameType, error: BaseException) -> bool:
    def holds(value: Any) -> bool:
        return value is error or (isinstance(value, tuple) and any(item is error for item in value))

    return any(holds(value) for value in frame.f_locals.values())
