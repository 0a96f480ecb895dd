"""Decides which values stay inside the orchestrator: those small and plain enough that moving them gains nothing.

An orchestrator whose own transport carries JSON keeps such values itself, visible in its user interface. Everything
else (tables, arrays, bytes, arbitrary objects, large strings or lists) is passed by reference.
"""

from __future__ import annotations

import math
from typing import Any

from entrepot_io.reference import is_reference

DEFAULT_INLINE_BELOW = 4096
_MAX_DEPTH = 16


def stays_inline(value: Any, below: int = DEFAULT_INLINE_BELOW) -> bool:
    """Whether a value is plain JSON of less than ``below`` bytes.

    Only exact types count: a subclass of ``dict`` would come back as a ``dict``. Values that an orchestrator could
    misinterpret (a dictionary that looks like a reference, keys with leading underscores, which orchestrators reserve)
    are not plain.

    Args:
        value: anything; never converted, and visited only until the answer is known.
        below: bytes; 0 sends everything by reference.
    """
    return _json_size(value, below, 0) < below


def _json_size(value: Any, budget: int, depth: int) -> int:
    """Approximate size of ``value`` as JSON, in bytes; ``budget`` if it is larger or not plain."""
    cls = type(value)
    if value is None or cls is bool:
        return 4
    if cls is int:
        return 1 + int(value).bit_length() // 3
    if cls is float:
        return 18 if math.isfinite(value) else budget  # JSON cannot represent NaN and infinities
    if cls is str:
        return _text_size(value, budget)
    if depth >= _MAX_DEPTH or cls not in (list, dict):
        return budget
    total = 2
    if cls is list:
        for item in value:
            total += 1 + _json_size(item, budget, depth + 1)
            if total >= budget:
                return budget
        return total
    if is_reference(value):
        return budget
    for key, item in value.items():
        if type(key) is not str or key.startswith("_"):
            return budget
        total += 2 + _text_size(key, budget) + _json_size(item, budget, depth + 1)
        if total >= budget:
            return budget
    return total


def _text_size(text: str, budget: int) -> int:
    if len(text) >= budget:
        return budget
    try:
        return 2 + len(text.encode())
    except UnicodeEncodeError:  # lone surrogates have no JSON form that every database accepts
        return budget
