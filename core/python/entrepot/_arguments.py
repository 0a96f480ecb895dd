"""What the methods of a store accept, each checked with an error that names the value."""

from __future__ import annotations

import math
from collections.abc import Sequence

from entrepot.codec import COPY_MODES
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

AnyID = ObjectID | str | bytes

NAME_MAX_BYTES = 255
MODES = {mode: number for number, mode in enumerate(COPY_MODES)}


def to_id(value: AnyID) -> ObjectID:
    return value if isinstance(value, ObjectID) else ObjectID(value)


def new_id(value: AnyID | None) -> tuple[ObjectID, bool]:
    """The ID that was given, or a fresh one; and whether it is fresh."""
    return (ObjectID.random(), True) if value is None else (to_id(value), False)


def new_ids(values: Sequence[AnyID] | None, count: int) -> list[tuple[ObjectID, bool]]:
    """As :func:`new_id` for ``count`` objects."""
    if values is None:
        return [(oid, True) for oid in ObjectID.random_many(count)]
    if len(values) != count:
        raise InvalidArgument(f"put_many got {count} values and {len(values)} ids: give one ID a value")
    return [(to_id(value), False) for value in values]


def checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"a name is text, but got {type(name).__name__}")
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= NAME_MAX_BYTES:
        raise InvalidArgument(f"a name has 1 to {NAME_MAX_BYTES} bytes, but {name[:60]!r} has {size}")
    return name


def mode_number(copy: str) -> int:
    mode = MODES.get(copy)  # type: ignore[call-overload]
    if mode is None:
        raise InvalidArgument(f"copy is one of {', '.join(map(repr, COPY_MODES))}, but got {copy!r}")
    return int(mode)


def seconds(timeout: float | None) -> float:
    if timeout is None:
        return math.inf
    if not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InvalidArgument(f"a timeout is a number of seconds, 0 or more, or None, but got {timeout!r}")
    return float(timeout)
