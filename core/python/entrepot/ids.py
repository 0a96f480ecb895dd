"""Object IDs: 20 bytes, written as 40 hexadecimal digits."""

from __future__ import annotations

import hashlib
import os
from functools import total_ordering

from entrepot.errors import InvalidArgument

ID_BYTES = 20


@total_ordering
class ObjectID:
    """ID of an object in a store: 20 bytes, shown as 40 hexadecimal digits.

    Args:
        value: 40 hexadecimal digits, 20 bytes, or another ``ObjectID``.

    Raises:
        InvalidArgument: the value has another length, or is not hexadecimal.

    >>> oid = ObjectID("00" * 20)
    >>> str(oid) == "00" * 20, len(oid.binary)
    (True, 20)
    """

    __slots__ = ("_binary",)
    _binary: bytes

    def __init__(self, value: str | bytes | bytearray | memoryview | ObjectID) -> None:
        if isinstance(value, ObjectID):
            self._binary = value._binary
            return
        if isinstance(value, str):
            if len(value) != 2 * ID_BYTES:
                raise InvalidArgument(
                    f"an object ID must have {2 * ID_BYTES} hexadecimal digits, but {value!r} has {len(value)}"
                )
            try:
                self._binary = bytes.fromhex(value)
            except ValueError:
                raise InvalidArgument(f"an object ID must consist of hexadecimal digits, but got {value!r}") from None
            if len(self._binary) != ID_BYTES:
                raise InvalidArgument(f"an object ID must not contain spaces, but got {value!r}")
            return
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise InvalidArgument(
                f"an object ID must be given as 40 hexadecimal digits or 20 bytes, not as {type(value).__name__}"
            )
        raw = bytes(value)
        if len(raw) != ID_BYTES:
            raise InvalidArgument(f"an object ID must have {ID_BYTES} bytes, but got {len(raw)}")
        self._binary = raw

    @classmethod
    def random(cls) -> ObjectID:
        """Return a new random ID."""
        return cls._from_bytes(os.urandom(ID_BYTES))

    @classmethod
    def random_many(cls, count: int) -> list[ObjectID]:
        """Return ``count`` new random IDs; cheaper than one at a time."""
        return cls.random_joined(count)[0]

    @classmethod
    def random_joined(cls, count: int) -> tuple[list[ObjectID], bytes]:
        """Return ``count`` new random IDs, and their bytes one after another."""
        raw = os.urandom(ID_BYTES * count)
        return [cls._from_bytes(raw[offset : offset + ID_BYTES]) for offset in range(0, len(raw), ID_BYTES)], raw

    @classmethod
    def _from_bytes(cls, raw: bytes) -> ObjectID:
        oid = cls.__new__(cls)
        oid._binary = raw
        return oid

    @classmethod
    def derive(cls, scope: str, session: str, key: str) -> ObjectID:
        """Derive the ID of a logical key in a session of a scope: the same three always give the same ID.

        >>> ObjectID.derive("a", "run-1", "load") == ObjectID.derive("a", "run-1", "load")
        True
        >>> ObjectID.derive("a", "run-1", "load") == ObjectID.derive("ar", "un-1", "load")
        False
        """
        digest = hashlib.blake2b(digest_size=ID_BYTES, person=b"entrepot-id-v1")
        for part in (scope, session, key):
            if not isinstance(part, str):
                raise InvalidArgument(f"an ID is derived from strings, but got {part!r} of type {type(part).__name__}")
            raw = part.encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(8, "little"))
            digest.update(raw)
        return cls(digest.digest())

    @property
    def binary(self) -> bytes:
        """The 20 bytes."""
        return self._binary

    def hex(self) -> str:
        """The 40 hexadecimal digits, in lower case."""
        return self._binary.hex()

    def __str__(self) -> str:
        return self._binary.hex()

    def __repr__(self) -> str:
        return f"ObjectID('{self._binary.hex()}')"

    def __hash__(self) -> int:
        return hash(self._binary)

    def __eq__(self, other: object) -> bool:
        return self._binary == other._binary if isinstance(other, ObjectID) else NotImplemented

    def __lt__(self, other: ObjectID) -> bool:
        return self._binary < other._binary

    def __reduce__(self) -> tuple[type[ObjectID], tuple[bytes]]:
        return (ObjectID, (self._binary,))
