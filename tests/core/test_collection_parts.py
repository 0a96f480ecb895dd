"""What travels about parts of collections: positions in references, and descriptions of members."""

from __future__ import annotations

from typing import Any

import entrepot
import pytest
from entrepot._codecs.encoding import codec_registry
from entrepot._collections.codecs import ReferenceCodec
from entrepot._collections.member_search import MemberDescription, pack_descriptions, parse_descriptions
from entrepot._collections.metadata import ValueTraits
from entrepot._collections.positions import compact, pack, unpack
from entrepot.codec import Encoder
from entrepot.errors import CorruptData
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(0, 99)))
def test_positions_are_restored(positions: list[int]) -> None:
    compacted = compact(positions)
    assert list(compacted) == positions
    assert unpack(pack(compacted), 100, "parts") == compacted


@given(st.integers(0, 99), st.integers(0, 30), st.integers(-3, 3).filter(bool))
def test_a_selection_that_is_a_range_is_one(start: int, length: int, step: int) -> None:
    positions = [each for each in range(start, start + length * step, step) if 0 <= each < 100]
    compacted = compact(positions)
    assert isinstance(compacted, range)
    assert list(compacted) == positions
    assert unpack(tuple(pack(compacted)), 100, "parts") == compacted


@pytest.mark.parametrize(
    "packed",
    [b"123", [0, 1], [0, 1, "x"], [0, 3, 0], [8, 3, 1], [-1, 1, 1], [2, 4, -1], b"\x0a\x00\x00\x00" + bytes(4), "text"],
)
def test_positions_that_do_not_exist_are_refused(packed: Any) -> None:
    with pytest.raises(CorruptData):
        unpack(packed, 10, "parts")


@given(st.one_of(st.binary(max_size=20), st.lists(st.integers(-5, 20), max_size=4)))
def test_any_positions_exist_or_are_refused(packed: Any) -> None:
    try:
        positions = unpack(packed, 10, "parts")
    except CorruptData:
        return
    assert all(0 <= position < 10 for position in positions)


def test_only_selections_need_the_newer_version_of_references(store: entrepot.Store) -> None:
    builder = store.collection("parts")
    for index in range(5):
        builder.put(index, index=index)
    sealed = builder.seal()

    def version(part: entrepot.Collection) -> int:
        return ReferenceCodec().encode(part, Encoder(codec_registry())).version

    assert [version(part) for part in (sealed, sealed[1:3], sealed.select([1, 3]))] == [1, 1, 1]
    chosen = sealed.select([0, 3, 4])
    assert version(chosen) == 2
    restored = store.get(store.put({"chosen": chosen, "slice": sealed[::2]}))
    assert restored == {"chosen": chosen, "slice": sealed[::2]}
    assert list(restored["chosen"]) == [0, 3, 4]


def _descriptions() -> list[MemberDescription]:
    traits = ValueTraits("numpy.ndarray", "tensor", "float64, 2 axes", 3, (4,), b"schema")
    other = ValueTraits("dict")
    return [
        MemberDescription(0, 1, 96, traits),
        MemberDescription(1, 2, 64, ValueTraits("numpy.ndarray", "tensor", "float64, 2 axes", 2, (4,), b"schema"), 7),
        MemberDescription(5, 1, 10, other),
    ]


def test_descriptions_are_restored_and_schemas_sent_once() -> None:
    packed = pack_descriptions(_descriptions())
    assert parse_descriptions(packed) == _descriptions()
    assert len(packed[0]) == 2


@pytest.mark.parametrize(
    "packed",
    [
        None,
        [],
        {"a": 1},
        [[], [[0]]],
        [[], [[0, 1, 2, None, 0, None]]],
        [[{"kind": "what"}], []],
        [[{"kind": "value", "type": "x", "layout": ""}], [[0, -1, 2, None, 0, 0]]],
    ],
)
def test_damaged_descriptions_are_refused(packed: Any) -> None:
    with pytest.raises(CorruptData):
        parse_descriptions(packed)
