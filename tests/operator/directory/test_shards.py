"""Shards: what is packed comes out again, what is damaged is noticed, and changes affect few of them."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import msgpack
import pytest
from entrepot_cluster.directory.codec import place_prefix, with_number
from entrepot_operator.directory import shards
from entrepot_operator.directory.shard_changes import ShardChange, plan_control, plan_entries
from entrepot_operator.directory.shards import MAX_SHARD_BYTES, Shard
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.binary(min_size=1, max_size=30)
ENTRIES = st.dictionaries(KEYS, st.binary(max_size=40), max_size=20)


def shard(index: int, entries: dict[bytes, bytes], *, term: int = 1, damaged: str | None = None) -> Shard:
    return Shard(f"c.00000007.{index}", f"uid-{index}", 10 + index, 7, index, term, entries, damaged)


def after(before: list[Shard], changes: list[ShardChange], term: int = 9) -> list[Shard]:
    """The shards after a change."""
    result = {each.index: each for each in before}
    for change in changes:
        result.pop(change.index, None)
        if change.entries:
            result[change.index] = shard(change.index, change.entries, term=term)
    return list(result.values())


def visible(of: list[Shard]) -> dict[bytes, bytes]:
    """What counts in shards."""
    merged: dict[bytes, bytes] = {}
    for each in sorted(of, key=lambda each: (each.term, each.index)):
        merged.update(each.entries)
    return merged


@given(ENTRIES)
def test_what_is_packed_comes_out_again(entries: dict[bytes, bytes]) -> None:
    assert shards.unpack(shards.pack(entries)) == entries


def _packed(value: Any, *, cut: int = 0) -> str:
    raw = b"\x01" + zlib.compress(msgpack.Packer().pack(value))
    return base64.b64encode(raw[: len(raw) - cut]).decode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%%%", "base64"),
        (base64.b64encode(b"\x02xx").decode(), "format is 2"),
        (base64.b64encode(b"\x01garbage").decode(), "error"),
        (_packed([b"key"]), "cut off"),
        (_packed([b"key", b"value"], cut=1), "cut off"),
        (_packed({b"key": b"value"}), "cut off"),
        (_packed([b"key", 1]), "not bytes"),
    ],
    ids=range(7),
)
def test_what_is_damaged_is_noticed(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shards.unpack(text)
    manifest = shards.shard_manifest("c", 7, 0, 1, {}, None)
    manifest["metadata"] |= {"uid": "u", "resourceVersion": "5"}
    manifest["spec"]["entries"] = text
    parsed = shards.parse_shard("c", manifest)
    assert parsed is not None
    assert parsed.damaged is not None
    assert parsed.entries == {}


def test_a_shard_that_was_written_is_read() -> None:
    entries = {b"pa": b"1", b"pb": b"2"}
    for number, index in ((None, 0), (7, 12)):
        manifest = shards.shard_manifest("c-1", number, index, 5, entries, 3)
        assert manifest["metadata"]["resourceVersion"] == "3"
        manifest["metadata"] |= {"uid": "u", "resourceVersion": "4"}
        expected = Shard(manifest["metadata"]["name"], "u", 4, number, index, 5, entries)
        assert shards.parse_shard("c-1", manifest) == expected
        assert shards.parse_shard("c", manifest) is None  # another cluster's
    head = shards.head_manifest("c", "nonce", 7)
    head["metadata"] |= {"uid": "u", "resourceVersion": "4"}
    assert shards.parse_head(head) == shards.Head("u", 4, 7)
    assert shards.parse_shard("c", head) is None


def test_entries_are_told_from_what_the_control_shard_has() -> None:
    assert shards.is_entry(with_number(place_prefix(bytes(20)), 1))
    for key in (b"m", b"x" + bytes(16), b"i" + bytes(4), b"pabc"):
        assert not shards.is_entry(key)


@given(st.lists(ENTRIES, max_size=4), ENTRIES, st.lists(KEYS, max_size=10))
def test_a_change_leaves_what_it_should(
    contents: list[dict[bytes, bytes]], puts: dict[bytes, bytes], others: list[bytes]
) -> None:
    """Also if shards have the same keys, which happens if a gateway writes that has just lost its lease."""
    before = [shard(2 * index, entries, term=index % 3) for index, entries in enumerate(contents)]
    deletes = [*others, *list(visible(before))[::2]]
    changes = plan_entries(7, before, puts, deletes)
    expected = {key: value for key, value in visible(before).items() if key not in deletes} | puts
    left = after(before, changes)
    assert visible(left) == expected
    assert sum(len(each.entries) for each in left) == len(expected)
    assert plan_entries(7, left, puts, deletes) == []  # the same again changes nothing


def test_a_small_change_writes_one_small_shard() -> None:
    many = {place_prefix(number.to_bytes(20, "big")): bytes(20) for number in range(1000)}
    filled = after([], plan_entries(7, [], many, ()))
    assert len(filled) == 3
    assert all(each.size <= MAX_SHARD_BYTES for each in filled)
    added = {place_prefix(bytes([255]) * 20): bytes(20)}
    (change,) = plan_entries(7, filled, added, ())
    assert change.base is filled[-1]
    (change,) = plan_entries(7, filled, {next(iter(filled[0].entries)): b"new"}, ())
    assert change.index == 0


def test_a_shard_without_entries_is_deleted_and_a_damaged_one_is_replaced() -> None:
    (change,) = plan_entries(7, [shard(0, {b"pa": b"1"}), shard(1, {b"pb": b"1"})], {}, [b"pa"])
    assert (change.index, change.entries) == (0, {})
    (change,) = plan_entries(7, [shard(0, {}, damaged="cut off"), shard(1, {b"pb": b"1"})], {}, ())
    assert (change.index, change.entries) == (0, {})
    (change,) = plan_entries(7, [shard(0, {}, damaged="cut off")], {b"pa": b"1"}, ())
    assert (change.index, change.entries) == (0, {b"pa": b"1"})


def test_the_control_shard_is_changed_as_a_whole() -> None:
    change = plan_control(None, {b"m": b"1", b"x": None})
    assert change.is_needed
    assert (change.base, change.entries) == (None, {b"m": b"1"})
    control = Shard("c.control", "u", 1, None, 0, 0, {b"m": b"1", b"i": b"2"})
    assert not plan_control(control, {b"m": b"1"}).is_needed
    assert plan_control(control, {b"i": None}).entries == {b"m": b"1"}
