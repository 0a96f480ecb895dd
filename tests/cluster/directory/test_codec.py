"""Keys and values of the directory survive a round trip, keep their order, and nothing else is taken for them."""

from __future__ import annotations

import pytest
from entrepot.errors import InvalidArgument
from entrepot_cluster.directory import (
    DirectoryDamaged,
    Instance,
    Life,
    NameEntry,
    PlaceEntry,
    SessionEntry,
    codec,
    session_reference,
)
from hypothesis import given
from hypothesis import strategies as st

OIDS = st.binary(min_size=20, max_size=20)
U64 = st.integers(0, (1 << 64) - 1)
NUMBERS = st.integers(0, (1 << 32) - 1)
TEXTS = st.text(st.characters(codec=None), max_size=60)
NAMES = st.text(st.characters(codec=None), min_size=1, max_size=60)
INSTANCES = st.binary(min_size=16, max_size=16).map(bytes.hex)
PLACES = st.builds(
    PlaceEntry,
    OIDS,
    U64,
    U64,
    st.binary(min_size=8, max_size=8),
    U64,
    st.none() | st.builds(Life, INSTANCES, U64),
)


@given(PLACES, U64, NUMBERS)
def test_a_place_survives(entry: PlaceEntry, epoch: int, number: int) -> None:
    key = codec.with_number(codec.place_prefix(entry.oid), number)
    value = codec.encode_place(entry, epoch, entry.sequence)
    assert codec.decode_place(key, value) == (entry, epoch)
    assert codec.number_of(key) == number


@given(NAMES, TEXTS, TEXTS, OIDS, U64, U64, NUMBERS)
def test_a_name_survives(
    name: str, scope: str, session: str, oid: bytes, generation: int, epoch: int, number: int
) -> None:
    key = codec.with_number(codec.name_prefix(scope, session, name), number)
    value = codec.encode_name(NameEntry(scope, session, name, oid, generation), epoch, 5)
    assert codec.decode_name(key, value) == (NameEntry("", "", name, oid, generation, 5), epoch)
    assert codec.number_of(key) == number


@given(TEXTS, TEXTS, U64, U64)
def test_a_session_survives(scope: str, session: str, replicas: int, epoch: int) -> None:
    key = codec.with_number(codec.session_prefix(session_reference(scope, session)), 7)
    entry = SessionEntry(scope, session, replicas)
    assert codec.decode_session(key, codec.encode_session(entry, epoch)) == (entry, epoch)


@given(
    INSTANCES,
    st.text(max_size=50),
    st.lists(st.text(max_size=20)),
    st.floats(0, 1e10),
    st.none() | st.floats(0, 1e10),
    U64,
)
def test_an_instance_survives(
    identity: str, host: str, addresses: list[str], started_at: float, lost: float | None, epoch: int
) -> None:
    record = codec.Record(Instance(identity, host, tuple(addresses), 3, started_at, lost), epoch, epoch // 2)
    assert codec.decode_record(codec.record_key(1), codec.encode_record(record)) == record


@given(NAMES, NAMES, NUMBERS, NUMBERS)
def test_no_key_of_a_name_begins_with_another(first: str, second: str, low: int, high: int) -> None:
    keys = [
        codec.with_number(codec.name_prefix("s", "r", name), number) for name, number in ((first, low), (second, high))
    ]
    assert keys[0] == keys[1] or not keys[0].startswith(keys[1])
    if first != second:
        assert not keys[0].startswith(codec.name_prefix("s", "r", second))


@given(st.binary(max_size=60))
def test_garbage_is_no_place_or_is_read_in_full(value: bytes) -> None:
    key = b"p" + bytes(24)
    try:
        entry, epoch = codec.decode_place(key, value)
    except DirectoryDamaged:
        return
    if entry.session != bytes(8):  # which may be spelled out, too
        assert codec.encode_place(entry, epoch, entry.sequence) == value


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_garbage_is_no_name_or_is_read_in_full(key: bytes, value: bytes) -> None:
    try:
        entry, epoch = codec.decode_name(key, value)
    except DirectoryDamaged:
        return
    assert codec.encode_name(entry, epoch, entry.sequence) == value


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_garbage_is_no_session(key: bytes, value: bytes) -> None:
    with pytest.raises(DirectoryDamaged):  # its key is a hash of its value
        codec.decode_session(key, value)


@given(PLACES, st.data())
def test_a_cut_or_longer_value_is_refused(entry: PlaceEntry, data: st.DataObject) -> None:
    key = codec.with_number(codec.place_prefix(entry.oid), 1)
    value = codec.encode_place(entry, 1, entry.sequence)
    cut = data.draw(st.integers(0, len(value) - 1))
    for wrong in (value[:cut], value + b"\x00", b"\x20" + value[1:], bytes([value[0] | 8]) + value[1:]):
        with pytest.raises(DirectoryDamaged):
            codec.decode_place(key, wrong)


@given(st.binary(max_size=100))
def test_garbage_is_no_instance(value: bytes) -> None:
    with pytest.raises(DirectoryDamaged):
        codec.decode_record(codec.record_key(1), value)


@pytest.mark.parametrize(
    "value",
    [
        b'{"id": 5}',
        b"[]",
        b'{"id": "00", "host": "h"}',
        b"[" * 100_000,
        b'{"id":"' + b"0" * 32 + b'","host":"h","addresses":[1],"protocol":1,"started":0,"epoch":1,"confirmed":0}',
        b'{"id":"' + b"0" * 32 + b'","host":null,"addresses":[],"protocol":1,"started":0,"epoch":1,"confirmed":0}',
    ],
    ids=["number", "list", "short", "nested", "addresses", "host"],
)
def test_json_of_another_shape_is_no_instance(value: bytes) -> None:
    with pytest.raises(DirectoryDamaged):
        codec.decode_record(codec.record_key(1), value)


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_numbers_that_do_not_fit_are_refused(number: int) -> None:
    with pytest.raises(InvalidArgument, match="2\\^64"):
        codec.encode_place(PlaceEntry(bytes(20), number, 1), 1, 1)


def test_a_place_is_small() -> None:
    entry = PlaceEntry(bytes(20), 1_000_000, 1 << 20, session_reference("default", "run"))
    key = codec.with_number(codec.place_prefix(entry.oid), 1)
    assert len(key) == 25
    assert len(codec.encode_place(entry, 1, 10_000_000)) <= 20
