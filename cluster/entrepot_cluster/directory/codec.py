"""Keys and values of the directory: small, because there are millions.

A key begins with one byte for its kind. Keys that belong to an instance end with its *number*: 4 bytes that stand for
its ID. No key is the beginning of another one.

    m                                    the cluster: JSON
    x  instance ID (16)                  the instance's number (4)
    i  number (4)                        the instance: JSON
    p  object ID (20)  number            place of an object
    n  session (8)  name  00 01  number  name; zero bytes in it are followed by FF
    s  session (8)  number               session

The values of p, n and s begin with a byte that has the format (1) in its upper half and flags in its lower half;
numbers are LEB128.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from entrepot.errors import InvalidArgument
from entrepot.ids import ID_BYTES

from entrepot_cluster.directory.errors import DirectoryDamaged
from entrepot_cluster.directory.model import (
    NO_SESSION,
    SESSION_BYTES,
    Instance,
    Life,
    NameEntry,
    PlaceEntry,
    SessionEntry,
    session_reference,
)

META = b"m"
NUMBERS = b"x"
RECORDS = b"i"
PLACES = b"p"
NAMES = b"n"
SESSIONS = b"s"
ENTRIES = (NAMES, PLACES, SESSIONS)  # kinds whose keys end with a number

NUMBER_BYTES = 4
INSTANCE_BYTES = 16
NAME_MAX_BYTES = 255
_FORMAT = 1 << 4
_HAS_SESSION = 1
_HAS_ORIGIN = 2
_IS_PRIMARY = 4
_END_OF_NAME = b"\x00\x01"
_U64 = (1 << 64) - 1


def successor(prefix: bytes) -> bytes:
    """Return the first key after all that begin with a prefix; the prefix must have a byte other than FF.

    >>> successor(b"p\\x01"), successor(b"p\\xff")
    (b'p\\x02', b'q')
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


# --- keys


def number_key(instance_id: str) -> bytes:
    """Return the key under which an instance's number is found; raises InvalidArgument for an invalid ID."""
    return NUMBERS + instance_bytes(instance_id)


def record_key(number: int) -> bytes:
    """Return the key of an instance's record."""
    return RECORDS + number.to_bytes(NUMBER_BYTES, "big")


def place_prefix(oid: bytes) -> bytes:
    """Return what the keys of an object's places begin with; raises InvalidArgument unless the ID has 20 bytes."""
    if len(oid) != ID_BYTES:
        raise InvalidArgument(f"an object ID must have {ID_BYTES} bytes, but {bytes(oid)!r} has {len(oid)}")
    return PLACES + oid


def names_prefix(scope: str, session: str) -> bytes:
    """Return what the keys of a session's names begin with."""
    return NAMES + session_reference(scope, session)


def name_start(name: str) -> bytes:
    """Return the bytes of (the beginning of) a name within a key."""
    return name.encode("utf-8", "surrogatepass").replace(b"\x00", b"\x00\xff")


def name_prefix(scope: str, session: str, name: str) -> bytes:
    """Return what the keys of a name begin with, one for each instance; raises InvalidArgument for a bad name."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= NAME_MAX_BYTES:
        raise InvalidArgument(f"a name must have 1 to {NAME_MAX_BYTES} bytes, but {name[:60]!r} has {size}")
    return names_prefix(scope, session) + name_start(name) + _END_OF_NAME


def session_prefix(reference: bytes) -> bytes:
    """Return what the keys of a session begin with, one for each instance."""
    if len(reference) != SESSION_BYTES:
        raise InvalidArgument(f"a session's reference must have {SESSION_BYTES} bytes, but got {reference!r}")
    return SESSIONS + reference


def with_number(prefix: bytes, number: int) -> bytes:
    """Return the key of an instance's entry."""
    return prefix + number.to_bytes(NUMBER_BYTES, "big")


def number_of(key: bytes) -> int:
    """Return the number at the end of a key."""
    return int.from_bytes(key[-NUMBER_BYTES:], "big")


def oid_of(key: bytes) -> bytes:
    """Return the object ID in the key of a place; raises DirectoryDamaged."""
    if len(key) != 1 + ID_BYTES + NUMBER_BYTES:
        raise _damaged(key, "the key of a place has 25 bytes")
    return key[1 : 1 + ID_BYTES]


def name_of(key: bytes) -> str:
    """Return the name in a key; raises DirectoryDamaged."""
    begin, end = 1 + SESSION_BYTES, -NUMBER_BYTES - len(_END_OF_NAME)
    raw = key[begin:end]
    if not raw or key[end:-NUMBER_BYTES] != _END_OF_NAME:
        raise _damaged(key, "this is not the key of a name")
    try:
        return raw.replace(b"\x00\xff", b"\x00").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise _damaged(key, str(error)) from None


def instance_bytes(instance_id: str) -> bytes:
    """Return the 16 bytes of an instance's ID; raises InvalidArgument."""
    try:
        raw = bytes.fromhex(instance_id)
    except ValueError:
        raw = b""
    if len(raw) != INSTANCE_BYTES or len(instance_id) != 2 * INSTANCE_BYTES:
        raise InvalidArgument(f"an instance's ID must have 32 hexadecimal digits, but got {instance_id!r}")
    return raw


# --- instances and the cluster


@dataclass(frozen=True, slots=True)
class Record:
    """An instance as the directory stores it.

    Attributes:
        instance: ``lost_since`` is None until somebody has noticed that the lease ended.
        epoch: how often the instance has registered; entries have the epoch in which they were published.
        confirmed: entries of earlier epochs do not count, because the gateway has published everything again since.
    """

    instance: Instance
    epoch: int
    confirmed: int


def encode_record(record: Record) -> bytes:
    """Encode an instance's record."""
    instance = record.instance
    return _json(
        {
            "id": instance.id,
            "host": instance.host,
            "addresses": list(instance.addresses),
            "protocol": instance.protocol,
            "started": instance.started_at,
            "lost": instance.lost_since,
            "epoch": record.epoch,
            "confirmed": record.confirmed,
        }
    )


def decode_record(key: bytes, value: bytes) -> Record:
    """Decode an instance's record; raises DirectoryDamaged."""
    fields = decode_json(key, value)
    lost = fields.get("lost")
    try:
        instance = Instance(
            id=instance_bytes(fields["id"]).hex(),
            host=_text(fields["host"]),
            addresses=tuple(_text(address) for address in fields["addresses"]),
            protocol=int(fields["protocol"]),
            started_at=float(fields["started"]),
            lost_since=None if lost is None else float(lost),
        )
        return Record(instance, int(fields["epoch"]), int(fields["confirmed"]))
    except (InvalidArgument, KeyError, TypeError, ValueError) as error:
        raise _damaged(key, f"{type(error).__name__}: {error}") from None


def encode_json(fields: dict[str, Any]) -> bytes:
    """Encode fields of the cluster."""
    return _json(fields)


def decode_json(key: bytes, value: bytes) -> dict[str, Any]:
    """Decode a JSON object; raises DirectoryDamaged."""
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _damaged(key, str(error)) from None
    if not isinstance(fields, dict):
        raise _damaged(key, "expected a JSON object")
    return fields


# --- values of entries


def encode_place(entry: PlaceEntry, epoch: int, sequence: int) -> bytes:
    """Encode a place; raises InvalidArgument for a number out of range."""
    flags = _FORMAT
    tail = b""
    if entry.session != NO_SESSION:
        session_prefix(entry.session)
        flags |= _HAS_SESSION
        tail = entry.session
    if entry.origin is not None:
        flags |= _HAS_ORIGIN
        tail += instance_bytes(entry.origin.instance) + _varint(entry.origin.generation)
    if entry.is_primary:
        flags |= _IS_PRIMARY
    numbers = _varint(epoch) + _varint(entry.generation) + _varint(entry.nbytes) + _varint(sequence)
    return bytes([flags]) + numbers + tail


def decode_place(key: bytes, value: bytes) -> tuple[PlaceEntry, int]:
    """Decode a place, and the epoch in which it was published; raises DirectoryDamaged."""
    oid = oid_of(key)
    reader = _Reader(key, value, _HAS_SESSION | _HAS_ORIGIN | _IS_PRIMARY)
    epoch, generation, nbytes, sequence = (reader.number() for _ in range(4))
    session = reader.take(SESSION_BYTES) if reader.flags & _HAS_SESSION else NO_SESSION
    origin = Life(reader.take(INSTANCE_BYTES).hex(), reader.number()) if reader.flags & _HAS_ORIGIN else None
    reader.end()
    is_primary = bool(reader.flags & _IS_PRIMARY)
    return PlaceEntry(oid, generation, nbytes, session, sequence, origin, is_primary), epoch


def encode_name(entry: NameEntry, epoch: int, sequence: int) -> bytes:
    """Encode what a name is bound to; raises InvalidArgument for a number out of range."""
    place_prefix(entry.oid)
    return bytes([_FORMAT]) + entry.oid + _varint(epoch) + _varint(entry.generation) + _varint(sequence)


def decode_name(key: bytes, value: bytes) -> tuple[NameEntry, int]:
    """Decode a name and the epoch in which it was published; its scope and session are left empty.

    Raises:
        DirectoryDamaged: the entry is not one of a name.
    """
    name = name_of(key)
    reader = _Reader(key, value, 0)
    oid = reader.take(ID_BYTES)
    epoch, generation, sequence = (reader.number() for _ in range(3))
    reader.end()
    return NameEntry("", "", name, oid, generation, sequence), epoch


def encode_session(entry: SessionEntry, epoch: int) -> bytes:
    """Encode a session; raises InvalidArgument for a number out of range."""
    scope = entry.scope.encode("utf-8", "surrogatepass")
    session = entry.session.encode("utf-8", "surrogatepass")
    return bytes([_FORMAT]) + _varint(epoch) + _varint(entry.replicas) + _varint(len(scope)) + scope + session


def decode_session(key: bytes, value: bytes) -> tuple[SessionEntry, int]:
    """Decode a session and the epoch in which it was published; raises DirectoryDamaged."""
    reader = _Reader(key, value, 0)
    epoch, replicas = reader.number(), reader.number()
    scope, session = reader.take(reader.number()), reader.rest()
    try:
        entry = SessionEntry(scope.decode("utf-8", "surrogatepass"), session.decode("utf-8", "surrogatepass"), replicas)
    except UnicodeDecodeError as error:
        raise _damaged(key, str(error)) from None
    if key[1:-NUMBER_BYTES] != session_reference(entry.scope, entry.session):
        raise _damaged(key, f"it holds session {entry.session!r} of scope {entry.scope!r}, which has another key")
    return entry, epoch


def _varint(value: int) -> bytes:
    if value < 0x80:
        if value < 0:
            raise InvalidArgument(f"the directory stores numbers from 0 to 2^64 - 1, but got {value}")
        return bytes((value,))
    if value > _U64:
        raise InvalidArgument(f"the directory stores numbers from 0 to 2^64 - 1, but got {value}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Reader:
    """Reads a value from front to back; whatever is wrong with it is DirectoryDamaged."""

    def __init__(self, key: bytes, value: bytes, known_flags: int) -> None:
        self._key = key
        self._value = value
        self._at = 1
        if not value or value[0] & 0xF0 != _FORMAT:
            raise _damaged(key, f"the value {value[:40]!r} is not of format 1")
        self.flags = value[0] & 0x0F
        if self.flags & ~known_flags:
            raise _damaged(key, f"the value has unknown flags ({self.flags})")

    def number(self) -> int:
        result = shift = 0
        value = self._value
        while True:
            if self._at >= len(value) or shift > 63:
                raise _damaged(self._key, "a number is cut off or too long")
            byte = value[self._at]
            self._at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if result > _U64 or (byte == 0 and shift):
            raise _damaged(self._key, "a number is not in its only form, or exceeds 64 bits")
        return result

    def take(self, count: int) -> bytes:
        part = self._value[self._at : self._at + count]
        if len(part) != count:
            raise _damaged(self._key, f"the value {self._value[:40]!r} is cut off")
        self._at += count
        return part

    def rest(self) -> bytes:
        return self.take(len(self._value) - self._at)

    def end(self) -> None:
        if self._at != len(self._value):
            raise _damaged(self._key, f"the value has {len(self._value) - self._at} bytes too many")


def _json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, but got {value!r}")
    return value


def _damaged(key: bytes, why: str) -> DirectoryDamaged:
    return DirectoryDamaged(
        f"the directory's entry {key[:80]!r} cannot be decoded ({why}): something other than Entrepot has written "
        "there, or its storage is damaged; delete the entry"
    )
