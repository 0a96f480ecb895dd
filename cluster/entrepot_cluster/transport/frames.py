"""Frames of the gateway protocol, packed and parsed; see ``docs/formats/gateway-protocol.md``.

Pure functions over bytes. Whatever comes from a peer is checked here, against the limits below, before anybody takes
memory for it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack
from entrepot import _core
from entrepot.errors import BY_CODE, CorruptData, EntrepotError, InvalidArgument, VersionMismatch

from entrepot_cluster.transport.endpoints import ObjectHeader, Wanted

MAGIC = b"EPTG"
VERSION = (1, 2)
ID_BYTES = 20
MAX_WANTED = 65_536  # objects in one request
MAX_TREE_BYTES = 64 << 20
MAX_BUFFERS = 1 << 20  # of one object
MAX_OBJECT_BYTES = 1 << 44
MAX_META_BYTES = MAX_TREE_BYTES + (16 << 20)
MAX_PAYLOAD_BYTES = 16 << 20  # of one frame
MAX_HANDSHAKE_BYTES = 16_384
ANY_GENERATION = 0  # the store numbers generations from 1

_PREAMBLE = struct.Struct("<4sHH")
# Kind, flags, reserved, request, meta bytes, payload bytes, CRC of the payload, of the meta, and of what precedes it.
_HEADER = struct.Struct("<BBHIIQIII")
_CHECKED = _HEADER.size - 4  # bytes of the header that its own checksum covers
_WANTED = struct.Struct(f"<{ID_BYTES}sQ")
_READ = struct.Struct(f"<{ID_BYTES}sQQQ")
_RECORD = struct.Struct("<IBBHQIII")  # index, outcome, reserved, reserved, generation, tree bytes, buffers, CRC
PREAMBLE_BYTES = _PREAMBLE.size
HEADER_BYTES = _HEADER.size
RECORD_BYTES = _RECORD.size


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1  # the handshake, in both directions
    FETCH = 2  # request: objects
    READ = 3  # request: a range of a large object
    RELEASE = 4  # notice: a large object is not read any more
    CONTROL = 5  # request: a map
    OBJECTS = 16  # answer to FETCH: outcomes, and the bytes of small objects
    PIECE = 17  # answer to READ: consecutive bytes
    REPLY = 18  # answer to CONTROL: a map
    ERROR = 19  # answer to anything: an error
    WORKING = 20  # no answer yet, but the peer is at work on it


LAST = 1  # flag: no other answer to the same request follows
PACKED = 2  # flag: the payload is compressed, and the meta begins with how (see compression.py)


class Outcome(IntEnum):
    """What an object's record in an OBJECTS frame says."""

    INLINE = 0  # its bytes are in the frame
    LARGE = 1  # its bytes are to be read
    FAILED = 2  # instead of a tree, the error


_OUTCOMES = tuple(Outcome)  # by number: faster than a call of the class for each record


@dataclass(frozen=True, slots=True)
class Frame:
    """The parsed header of a frame.

    Attributes:
        kind, flags: what it is.
        request: number of the request that it is, or answers.
        meta_bytes, payload_bytes: how many follow.
        payload_crc: CRC-32C of the payload of a PIECE that is not packed; 0 in other frames.
        meta_crc: CRC-32C of the meta.
    """

    kind: Kind
    flags: int
    request: int
    meta_bytes: int
    payload_bytes: int
    payload_crc: int
    meta_crc: int

    @property
    def last(self) -> bool:
        """Whether no other answer to the same request follows."""
        return bool(self.flags & LAST)

    @property
    def packed(self) -> bool:
        """Whether the payload is compressed."""
        return bool(self.flags & PACKED)


class Record(NamedTuple):
    """One object's outcome in an OBJECTS frame.

    Attributes:
        number: position of the object in the request.
        outcome: what follows.
        header: the object; None if it failed.
        crc: CRC-32C of the frame's payload up to the object's end, if its bytes are inline.
        error: why it failed; None otherwise.
    """

    number: int
    outcome: Outcome
    header: ObjectHeader | None
    crc: int
    error: EntrepotError | None


def pack_preamble() -> bytes:
    """What both ends send first; its layout never changes."""
    return _PREAMBLE.pack(MAGIC, *VERSION)


def check_preamble(data: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return the peer's version.

    Raises:
        CorruptData: these are not the first bytes of a gateway.
        VersionMismatch: its major version differs.
    """
    magic, major, minor = _PREAMBLE.unpack(data)
    if magic != MAGIC:
        raise CorruptData(f"the peer is no gateway: its first bytes are {bytes(data)!r}, and {MAGIC!r} was expected")
    if major != VERSION[0]:
        raise VersionMismatch(
            f"the peer speaks version {major}.{minor} of the gateway protocol, and this gateway version "
            f"{VERSION[0]}.{VERSION[1]}: run the same release of Entrepot on all hosts of a cluster"
        )
    return major, minor


def pack_head(
    kind: Kind,
    request: int,
    meta: bytes = b"",
    *,
    last: bool = False,
    packed: bool = False,
    payload_bytes: int = 0,
    payload_crc: int = 0,
) -> bytes:
    """Header and meta of a frame; its payload follows on the wire."""
    flags = (LAST if last else 0) | (PACKED if packed else 0)
    fields = (kind, flags, 0, request, len(meta), payload_bytes, payload_crc, _core.crc32c(meta) if meta else 0)
    header = _HEADER.pack(*fields, 0)[:_CHECKED]
    return header + _core.crc32c(header).to_bytes(4, "little") + meta


def parse_header(data: bytes | bytearray | memoryview) -> Frame:
    """Parse a header and hold its lengths to the limits.

    Raises:
        CorruptData: it was changed on the way, the kind is unknown, or a length is above its limit.
    """
    kind, flags, _, request, meta_bytes, payload_bytes, payload_crc, meta_crc, expected = _HEADER.unpack(data)
    crc = _core.crc32c(memoryview(data)[:_CHECKED])
    if crc != expected:
        raise CorruptData(f"the header of a frame arrived with the CRC-32C {crc:08x}, and was sent with {expected:08x}")
    try:
        parsed_kind = Kind(kind)
    except ValueError:
        raise CorruptData(f"the peer sent a frame of the unknown kind {kind}") from None
    if meta_bytes > MAX_META_BYTES:
        raise CorruptData(f"the peer announced {meta_bytes} bytes of metadata in a frame; at most {MAX_META_BYTES}")
    if payload_bytes > MAX_PAYLOAD_BYTES:
        raise CorruptData(
            f"the peer announced {payload_bytes} bytes of payload in a frame; at most {MAX_PAYLOAD_BYTES}"
        )
    return Frame(parsed_kind, flags, request, meta_bytes, payload_bytes, payload_crc, meta_crc)


def check_meta(meta: bytes | bytearray | memoryview, frame: Frame) -> None:
    """Compare the checksum of the meta.

    Raises:
        CorruptData: it was changed on the way.
    """
    crc = _core.crc32c(meta) if len(meta) else 0
    if crc != frame.meta_crc:
        raise CorruptData(
            f"the metadata of a frame of kind {frame.kind.name} arrived with the CRC-32C {crc:08x}, and was sent with "
            f"{frame.meta_crc:08x}"
        )


def pack_wanted(wanted: Sequence[Wanted]) -> bytes:
    """Meta of a FETCH."""
    pack = _WANTED.pack
    return b"".join([pack(item.id, item.generation or ANY_GENERATION) for item in wanted])


def parse_wanted(meta: bytes | bytearray | memoryview) -> list[Wanted]:
    """Parse the meta of a FETCH.

    Raises:
        CorruptData: its length is none that a list of objects has.
    """
    if len(meta) % _WANTED.size or not 0 < len(meta) <= MAX_WANTED * _WANTED.size:
        raise CorruptData(f"the peer's list of wanted objects has {len(meta)} bytes, no multiple of {_WANTED.size}")
    return [Wanted(oid, generation or None) for oid, generation in _WANTED.iter_unpack(meta)]


def pack_read(oid: bytes, generation: int, offset: int, length: int) -> bytes:
    """Meta of a READ; of a RELEASE with zeros as the range."""
    return _READ.pack(oid, generation, offset, length)


def parse_read(meta: bytes | bytearray | memoryview) -> tuple[bytes, int, int, int]:
    """Parse the meta of a READ or RELEASE: ID, generation, offset, length.

    Raises:
        CorruptData: its length is wrong, or it names no generation.
    """
    if len(meta) != _READ.size:
        raise CorruptData(f"the peer's request for a range has {len(meta)} bytes instead of {_READ.size}")
    oid, generation, offset, length = _READ.unpack(meta)
    if generation == ANY_GENERATION:
        raise CorruptData("the peer asked for a range of an object without its generation")
    return oid, generation, offset, length


def pack_record(index: int, outcome: Outcome, header: ObjectHeader, crc: int) -> bytes:
    """The record of an object."""
    lengths, tree = header.lengths, header.tree
    packed = _RECORD.pack(index, outcome, 0, 0, header.generation, len(tree), len(lengths), crc)
    return packed + struct.pack(f"<{len(lengths)}Q", *lengths) + tree


def pack_failure(index: int, error: EntrepotError) -> bytes:
    """The record of an object that cannot be sent."""
    text = pack_error(error)
    return _RECORD.pack(index, Outcome.FAILED, 0, 0, 0, len(text), 0, 0) + text


def parse_records(meta: bytes | bytearray | memoryview, wanted: Sequence[Wanted], payload_bytes: int) -> list[Record]:
    """Parse the meta of an OBJECTS frame.

    Args:
        meta: as it arrived.
        wanted: the objects of the request.
        payload_bytes: how many bytes follow.

    Raises:
        CorruptData: it does not parse, answers what was not asked, exceeds a limit or does not describe the payload.
    """
    inline_bytes = 0
    records: list[Record] = []
    for index, outcome, generation, tree, lengths, crc in _core.split_records(meta, MAX_TREE_BYTES, MAX_BUFFERS):
        if index >= len(wanted):
            raise CorruptData(f"the peer answered for object {index} of a request for {len(wanted)}")
        if outcome == Outcome.FAILED:
            records.append(Record(index, Outcome.FAILED, None, 0, parse_error(tree)))
            continue
        nbytes = sum(lengths)
        if nbytes > MAX_OBJECT_BYTES:
            raise CorruptData(f"the peer described an object of {nbytes} bytes; at most {MAX_OBJECT_BYTES}")
        asked = wanted[index]
        if generation == ANY_GENERATION or asked.generation not in (None, generation):
            raise CorruptData(f"the peer sent generation {generation} instead of {asked.generation}")
        inline_bytes += nbytes if outcome == Outcome.INLINE else 0
        header = ObjectHeader(asked.id, generation, tree, lengths)
        records.append(Record(index, _OUTCOMES[outcome], header, crc, None))
    if inline_bytes != payload_bytes:
        raise CorruptData(f"objects of {inline_bytes} bytes were described, and {payload_bytes} bytes announced")
    return records


def pack_map(values: dict[str, Any]) -> bytes:
    """A small message."""
    packed: Any = msgpack.packb(values, use_bin_type=True)
    return bytes(packed)


def parse_map(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Parse a small message.

    Raises:
        CorruptData: it is no map with text as keys.
    """
    try:
        values = msgpack.unpackb(data, raw=False)
    except Exception as error:  # msgpack raises several unrelated types for bad input
        raise CorruptData(f"a message of the peer cannot be read: {error}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise CorruptData("a message of the peer is not a map with text as keys")
    return values


def field(values: dict[str, Any], key: str, kind: type[Any]) -> Any:
    """One value of a small message.

    Raises:
        CorruptData: it is missing or of another type.
    """
    value = values.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise CorruptData(f"a message of the peer has no {key!r} of type {kind.__name__}, but {str(value)[:100]!r}")
    return value


def pack_error(error: EntrepotError) -> bytes:
    """An error, for the peer."""
    return pack_map({"code": error.code, "message": error.message[:2000]})


def parse_error(data: bytes | bytearray | memoryview, whose: str = "") -> EntrepotError:
    """The peer's error; with ``whose`` before its message.

    Raises:
        CorruptData: it cannot be read.
    """
    values = parse_map(data)
    code, message = field(values, "code", str), field(values, "message", str)
    return BY_CODE.get(code, EntrepotError)(whose + message[:2000])


def checked_id(value: bytes) -> bytes:
    """An object's ID.

    Raises:
        InvalidArgument: it does not have 20 bytes.
    """
    if len(value) != ID_BYTES:
        raise InvalidArgument(f"an object ID has {ID_BYTES} bytes, not {len(value)}")
    return bytes(value)
