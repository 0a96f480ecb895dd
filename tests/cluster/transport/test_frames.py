"""Frames: what is packed parses to the same, and whatever else arrives is a typed error."""

from __future__ import annotations

import struct

import pytest
from entrepot import ObjectNotFound, _core
from entrepot.errors import CorruptData, EntrepotError, VersionMismatch
from entrepot_cluster.transport import frames
from entrepot_cluster.transport.endpoints import ObjectHeader, Wanted
from entrepot_cluster.transport.frames import Kind, Outcome
from hypothesis import given
from hypothesis import strategies as st

IDS = st.binary(min_size=20, max_size=20)
GENERATIONS = st.integers(1, 2**64 - 1)
WANTED = st.lists(st.builds(Wanted, IDS, st.none() | GENERATIONS), min_size=1, max_size=20)


def _header(oid: bytes, generation: int, tree: bytes, lengths: list[int]) -> ObjectHeader:
    return ObjectHeader(oid, generation, tree, tuple(lengths))


@given(WANTED)
def test_wanted_objects(wanted: list[Wanted]) -> None:
    assert frames.parse_wanted(frames.pack_wanted(wanted)) == wanted


@given(IDS, GENERATIONS, st.integers(0, 2**63), st.integers(0, 2**63))
def test_ranges(oid: bytes, generation: int, offset: int, length: int) -> None:
    packed = frames.pack_read(oid, generation, offset, length)
    assert frames.parse_read(packed) == (oid, generation, offset, length)


@given(
    st.sampled_from(Kind),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=200),
    st.booleans(),
    st.integers(0, frames.MAX_PAYLOAD_BYTES),
    st.integers(0, 2**32 - 1),
)
def test_heads(kind: Kind, request: int, meta: bytes, last: bool, payload: int, crc: int) -> None:
    head = frames.pack_head(kind, request, meta, last=last, payload_bytes=payload, payload_crc=crc)
    frame = frames.parse_header(head[: frames.HEADER_BYTES])
    assert (frame.kind, frame.request, frame.last, frame.payload_bytes) == (kind, request, last, payload)
    assert (frame.meta_bytes, frame.payload_crc) == (len(meta), crc)
    frames.check_meta(meta, frame)


@given(st.binary(max_size=100), st.data())
def test_each_changed_bit_of_a_head_is_noticed(meta: bytes, data: st.DataObject) -> None:
    head = bytearray(frames.pack_head(Kind.OBJECTS, 7, meta, payload_bytes=5))
    bit = data.draw(st.integers(0, 8 * len(head) - 1))
    head[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(CorruptData, match="arrived with the CRC-32C"):
        frames.check_meta(head[frames.HEADER_BYTES :], frames.parse_header(head[: frames.HEADER_BYTES]))


@given(
    st.lists(
        st.tuples(
            IDS,
            st.integers(1, 2**40),
            st.binary(max_size=50),
            st.lists(st.integers(0, 5000), max_size=5),
            st.sampled_from(Outcome),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_records(objects: list[tuple[bytes, int, bytes, list[int], Outcome]]) -> None:
    wanted = [Wanted(oid, generation if index % 2 else None) for index, (oid, generation, *_) in enumerate(objects)]
    packed, payload = [], 0
    for index, (oid, generation, tree, lengths, outcome) in enumerate(objects):
        if outcome == Outcome.FAILED:
            packed.append(frames.pack_failure(index, ObjectNotFound(f"object {index}")))
        else:
            packed.append(frames.pack_record(index, outcome, _header(oid, generation, tree, lengths), index))
            payload += sum(lengths) if outcome == Outcome.INLINE else 0
    records = frames.parse_records(b"".join(packed), wanted, payload)
    for index, (record, (oid, generation, tree, lengths, outcome)) in enumerate(zip(records, objects, strict=True)):
        assert (record.number, record.outcome) == (index, outcome)
        if outcome == Outcome.FAILED:
            assert isinstance(record.error, ObjectNotFound)
            assert record.error.message == f"object {index}"
        else:
            assert record.header == _header(oid, generation, tree, lengths)
            assert record.crc == index


@given(st.binary(max_size=300), WANTED, st.integers(0, 1 << 20))
def test_garbage_is_a_typed_error(data: bytes, wanted: list[Wanted], payload: int) -> None:
    for parse in (
        lambda: frames.parse_records(data, wanted, payload),
        lambda: frames.parse_wanted(data),
        lambda: frames.parse_read(data),
        lambda: frames.parse_map(data),
        lambda: frames.parse_error(data),
        lambda: frames.parse_header(data[: frames.HEADER_BYTES].ljust(frames.HEADER_BYTES, b"\0")),
        lambda: frames.check_preamble(data[:8].ljust(8, b"\0")),
    ):
        try:
            parse()
        except EntrepotError:
            continue


def _record(index: int = 0, outcome: int = 0, generation: int = 1, tree: int = 0, count: int = 0) -> bytes:
    return struct.pack("<IBBHQIII", index, outcome, 0, 0, generation, tree, count, 0)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (_record(index=1), "answered for object 1 of a request for 1"),
        (_record(outcome=9), "outcome 9"),
        (_record(tree=frames.MAX_TREE_BYTES + 1), "bytes of tree"),
        (_record(count=frames.MAX_BUFFERS + 1), "1048577 buffers"),
        (_record(count=3), "cut off"),
        (_record()[:-1], "cut off"),
        (_record(generation=0), "generation 0"),
        (_record(count=1) + struct.pack("<Q", frames.MAX_OBJECT_BYTES + 1), "an object of"),
        (_record(count=1) + struct.pack("<Q", 10), "objects of 10 bytes were described, and 0 bytes announced"),
    ],
    ids=["index", "outcome", "tree", "buffers", "lengths", "short", "generation", "size", "payload"],
)
def test_what_a_record_must_not_say(meta: bytes, message: str) -> None:
    with pytest.raises(CorruptData, match=message):
        frames.parse_records(meta, [Wanted(bytes(20))], 0)


def test_another_generation_than_asked_for_is_refused() -> None:
    packed = frames.pack_record(0, Outcome.INLINE, _header(bytes(20), 3, b"", []), 0)
    with pytest.raises(CorruptData, match="generation 3 instead of 2"):
        frames.parse_records(packed, [Wanted(bytes(20), 2)], 0)


def _raw_header(kind: int, meta_bytes: int, payload_bytes: int) -> bytes:
    header = struct.pack("<BBHIIQII", kind, 0, 0, 1, meta_bytes, payload_bytes, 0, 0)
    return header + _core.crc32c(header).to_bytes(4, "little")


def test_limits_of_a_header() -> None:
    with pytest.raises(CorruptData, match="metadata in a frame"):
        frames.parse_header(_raw_header(16, frames.MAX_META_BYTES + 1, 0))
    with pytest.raises(CorruptData, match="payload in a frame"):
        frames.parse_header(_raw_header(16, 0, frames.MAX_PAYLOAD_BYTES + 1))
    with pytest.raises(CorruptData, match="unknown kind 99"):
        frames.parse_header(_raw_header(99, 0, 0))


def test_versions() -> None:
    assert frames.check_preamble(frames.pack_preamble()) == frames.VERSION
    assert frames.check_preamble(struct.pack("<4sHH", b"EPTG", 1, 7)) == (1, 7)
    with pytest.raises(VersionMismatch, match=r"version 2\.3 .* version 1\.2"):
        frames.check_preamble(struct.pack("<4sHH", b"EPTG", 2, 3))
    with pytest.raises(CorruptData, match="no gateway"):
        frames.check_preamble(b"HTTP/1.1")
