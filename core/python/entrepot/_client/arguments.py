"""Validation of the arguments of ``Store``'s methods; every error names the offending value."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import Any, SupportsIndex, cast

from entrepot.codec import COPY_MODES
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

AnyID = ObjectID | str | bytes

NAME_MAX_BYTES = 255
COPY_MODE_NUMBERS = {mode: number for number, mode in enumerate(COPY_MODES)}


def to_id(value: AnyID) -> ObjectID:
    return value if isinstance(value, ObjectID) else ObjectID(value)


def new_id(value: AnyID | None) -> tuple[ObjectID, bool]:
    """Return the given ID or a new random one, and whether it is new."""
    return (ObjectID.random(), True) if value is None else (to_id(value), False)


def given_ids(ids: Sequence[AnyID], count: int) -> list[ObjectID]:
    """Return the IDs given for ``count`` values."""
    if len(ids) != count:
        raise InvalidArgument(f"put_many got {count} values and {len(ids)} ids: pass one ID per value")
    return [to_id(oid) for oid in ids]


def checked_text(subject: str, value: str) -> str:
    """Check that ``value`` is a string that can be encoded as UTF-8; ``subject`` starts the error message."""
    if not isinstance(cast(object, value), str):
        raise InvalidArgument(f"{subject} must be a string, but got {value!r} of type {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{subject} must be valid UTF-8, but character {error.start} of {value[:60]!r} is a lone surrogate, as in "
            "a file name that is not UTF-8: decode it with errors='replace'"
        ) from None
    return value


# More than any store has: a request for so much is refused by the store, which says how much it has.
MAX_REQUEST_BYTES = 1 << 62


def checked_integer(subject: str, value: SupportsIndex, maximum: int = (1 << 63) - 1) -> int:
    """Check for an integer (also a NumPy one) from 0 to ``maximum``; ``subject`` starts the error message."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= maximum:
        raise InvalidArgument(f"{subject} must be an integer from 0 to {maximum}, but got {value!r}")
    return number


def checked_boolean(subject: str, value: bool) -> bool:
    """Check for a boolean (also a NumPy one); ``subject`` starts the error message."""
    if value is True or value is False:
        return value
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise InvalidArgument(f"{subject} must be True or False, but got {value!r}")


def checked_name(name: str) -> str:
    size = len(checked_text("a name", name).encode())
    if not 0 < size <= NAME_MAX_BYTES:
        raise InvalidArgument(f"a name must have 1 to {NAME_MAX_BYTES} bytes, but {name[:60]!r} has {size}")
    return name


def copy_mode_number(copy: str) -> int:
    mode = COPY_MODE_NUMBERS.get(copy) if isinstance(cast(object, copy), str) else None  # type: ignore[call-overload]
    if mode is None:
        raise InvalidArgument(f"copy must be one of {', '.join(map(repr, COPY_MODES))}, but got {copy!r}")
    return int(mode)


def timeout_seconds(timeout: float | None) -> float:
    if timeout is None:
        return math.inf
    if not isinstance(timeout, (int, float, Real)) or not timeout >= 0:
        raise InvalidArgument(f"a timeout must be None or a number of seconds, 0 or more, but got {timeout!r}")
    return as_float(timeout)


def as_float(value: Any) -> float:
    """Convert to float; numbers too large for one become infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
