"""Which members of a sealed collection a view of it has: a range, as of a slice, or any selection."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from entrepot.errors import CorruptData

Positions = range | tuple[int, ...]
_ITEM_BYTES = 4  # positions are below 2^26


def compact(positions: Sequence[int]) -> Positions:
    """Return positions as a range if they are one, so that equal views are equal and their references are small."""
    if isinstance(positions, range):
        return positions
    if len(positions) < 2:
        return range(positions[0], positions[0] + 1) if positions else range(0)
    step = positions[1] - positions[0]
    if step and all(second - first == step for first, second in pairwise(positions)):
        return range(positions[0], positions[-1] + (1 if step > 0 else -1), step)
    return tuple(positions)


def pack(positions: Positions) -> list[int] | bytes:
    """Return a range as start, length and step; a selection as 32-bit numbers, little-endian."""
    if isinstance(positions, range):
        return [positions.start, len(positions), positions.step]
    return b"".join([position.to_bytes(_ITEM_BYTES, "little") for position in positions])


def check_packed(packed: Any) -> None:
    """Check that this is what :func:`pack` returns (a range also as a tuple), or None.

    Raises:
        CorruptData: it is not.
    """
    is_range = isinstance(packed, (list, tuple)) and len(packed) == 3 and all(type(each) is int for each in packed)
    is_selection = isinstance(packed, bytes) and len(packed) % _ITEM_BYTES == 0
    if packed is not None and not is_range and not is_selection:
        raise CorruptData("a reference to a part of a collection does not specify its members")


def unpack(packed: Any, count: int, name: str) -> Positions:
    """Read what :func:`pack` returned.

    Args:
        packed: which members.
        count: number of members of the collection.
        name: the collection's.

    Raises:
        CorruptData: it is something else, or there are no such members.
    """
    check_packed(packed)
    positions: Sequence[int]
    if isinstance(packed, bytes):
        positions = [
            int.from_bytes(packed[start : start + _ITEM_BYTES], "little")
            for start in range(0, len(packed), _ITEM_BYTES)
        ]
        bounds = positions
    else:
        start, length, step = packed
        positions = range(start, start + length * step, step) if step else range(0)
        bounds = [start, start + (length - 1) * step] if length > 0 else []
        if length and not step:
            bounds = [-1]
    if any(not 0 <= position < count for position in bounds):
        raise CorruptData(f"a reference to collection {name!r} selects members {packed!r}, which do not exist")
    return compact(positions)
