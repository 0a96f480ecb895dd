"""IDs of Plasma objects."""

from __future__ import annotations

import os
from typing import Any

from entrepot.ids import ID_BYTES


class ObjectID:
    """ID of an object: 20 bytes. For ``Store.get`` of the same object, pass :meth:`binary`.

    Args:
        object_id: 20 bytes.

    Raises:
        ValueError: anything else.
    """

    __slots__ = ("__weakref__", "_binary")

    def __init__(self, object_id: bytes) -> None:
        if not isinstance(object_id, bytes) or len(object_id) != ID_BYTES:
            raise ValueError(f"an ObjectID takes {ID_BYTES} bytes, but got {object_id!r}")
        self._binary = object_id

    @staticmethod
    def from_random() -> ObjectID:
        """Return a new random ID."""
        return ObjectID(os.urandom(ID_BYTES))

    def binary(self) -> bytes:
        """Return the 20 bytes."""
        return self._binary

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectID) and self._binary == other._binary

    def __hash__(self) -> int:
        return hash(self._binary)

    def __repr__(self) -> str:
        return f"ObjectID({self._binary.hex()})"

    def __reduce__(self) -> tuple[type[ObjectID], tuple[bytes]]:
        return ObjectID, (self._binary,)


def binary_of(object_id: Any) -> bytes:
    """Return the 20 bytes of an ``ObjectID``.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(object_id, ObjectID):
        raise TypeError(f"expected a plasma.ObjectID, but got {object_id!r} of type {type(object_id).__name__}")
    return object_id._binary  # pyright: ignore[reportPrivateUsage]
