"""Plain Python data: exact round trips without pickle, including types, order and signs."""

from __future__ import annotations

import datetime as dt
import enum
import math
import struct
import uuid
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from entrepot.codec import unpack_tree
from entrepot.errors import CorruptData, UnsupportedType
from entrepot.ids import ObjectID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Point = namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


class Text(str):
    __slots__ = ()


def same(left: Any, other: Any) -> bool:
    """Equality that also compares types and order, and treats NaN as equal to itself."""
    if type(left) is not type(other):
        return False
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(other)) or (
            left == other and math.copysign(1, left) == math.copysign(1, other)
        )
    if isinstance(left, complex):
        return same(left.real, other.real) and same(left.imag, other.imag)
    if isinstance(left, (list, tuple)):
        return len(left) == len(other) and all(map(same, left, other))
    if isinstance(left, dict):
        return len(left) == len(other) and all(
            same(*keys) and same(left[keys[0]], other[keys[1]]) for keys in zip(left, other, strict=True)
        )
    if isinstance(left, (set, frozenset)):
        return sorted(map(repr, left)) == sorted(map(repr, other))
    if isinstance(left, Decimal):
        return str(left) == str(other)
    return bool(left == other) and repr(left) == repr(other)


VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    10**400,
    -0.0,
    float("nan"),
    float("-inf"),
    5e-324,
    complex(-0.0, float("inf")),
    "",
    "naïve \U0001f600",
    "\0",
    "\ud800",
    "\ud83d\ude00",
    "x" * 100_000,
    [],
    (),
    {},
    set(),
    frozenset(),
    ((), [()], {"a": ()}),
    [True, 1, 1.0, "1"],
    {"b": 1, "a": 2, 3: 4, None: 5, 1.5: 6, b"k": 7, True: 8},
    {(1, 2): [3], frozenset([1]): (4,), "s": {5}},
    {2**70: (2**80,)},
    {float("nan"): 1},
    {"\ud800": 1, (1,): "\udfff"},
    [b"", b"short", bytearray(b"mutable")],
    {"long": b"x" * 100_000, "mutable": bytearray(100_000)},
    dt.date(2020, 2, 29),
    dt.datetime(2020, 1, 1, 2, 3, 4, 5, fold=1),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone.utc),
    dt.time(23, 59, 59, 999_999, fold=1),
    dt.timedelta(-999_999_999),
    [dt.timedelta(microseconds=1), dt.timedelta.max],
    [Decimal("-0.00"), Decimal("NaN"), Decimal("sNaN12"), Decimal("1E+9999"), Decimal("-Infinity")],
    uuid.UUID(int=5),
    ObjectID("ab" * 20),
    [[[[[]]]]] * 3,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30].encode("ascii", "replace").decode())
def test_comes_back_the_same_without_pickle(round_trip: Any, value: Any) -> None:
    assert same(round_trip(value), value)


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters())
    | st.binary(max_size=50)
    | st.binary(max_size=50).map(bytearray)
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
)
keys = st.none() | st.booleans() | st.integers() | st.text(st.characters()) | st.tuples(st.integers(), st.text())
nested = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(keys, inner, max_size=5)
        | st.sets(keys, max_size=5)
        | st.frozensets(keys, max_size=5)
    ),
    max_leaves=30,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(value=nested)
def test_any_nesting_comes_back_the_same(round_trip: Any, value: Any) -> None:
    assert same(round_trip(value), value)


def test_large_plain_data_is_one_node_and_one_buffer(put: Any) -> None:
    stored = put({number: number for number in range(100_000)})
    node = unpack_tree(stored.tree)
    assert (stored.codec, node.children, len(stored.buffers)) == ("python.data", [], 1)
    assert len(stored.tree) < 100
    assert stored.get() == {number: number for number in range(100_000)}


@pytest.mark.parametrize(
    "value",
    [
        Point(1, 2),
        [Point(1, [2])],
        Text("x"),
        {"k": Text("x")},
        {Text("k"): 1},
        OrderedDict(a=1),
        [Colour.RED],
        range(3),
    ],
    ids=repr,
)
def test_subclasses_and_objects_are_pickled_with_their_type(put: Any, round_trip: Any, value: Any) -> None:
    assert put(value, allow_pickle=True).codec == "python.pickle"
    assert same(round_trip(value, allow_pickle=True), value)
    with pytest.raises(UnsupportedType, match="pickling is switched off"):
        put(value)


def test_zones_other_than_utc_are_pickled(put: Any, round_trip: Any) -> None:
    value = [dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2), "two"))]
    back = round_trip(value, allow_pickle=True)
    assert back == value
    assert back[0].tzname() == "two"
    with pytest.raises(UnsupportedType, match="UTC"):
        put(value)


def test_a_value_that_contains_itself(put: Any, round_trip: Any) -> None:
    value: list[Any] = [1]
    value.append({"self": value})
    back = round_trip(value, allow_pickle=True)
    assert back[1]["self"] is back
    with pytest.raises(UnsupportedType, match="contains itself"):
        put(value)


def test_references_between_pickled_parts_are_kept(round_trip: Any) -> None:
    shared = [Colour.RED]
    back = round_trip({"a": shared, "b": shared}, allow_pickle=True)
    assert back["a"] is back["b"]


X, D, S = [1, [2]], {"k": [3], (1, 2): 4}, {5, (6,)}
FLAT, SMALL = [1, 2], {"a": 1}


@pytest.mark.parametrize(
    "value",
    [
        [X, X],
        (FLAT, FLAT),
        [FLAT, {"k": FLAT}],
        {"a": D, "b": [D]},
        [(1, 2), SMALL, (SMALL,), SMALL],
        [S, [S], frozenset({(1, 2)}), S],
        [X, X[1], [X[1], X]],
        [[X, D], [D, S], {(1, (2, 3)): S, "x": X}],
        [b"x" * 5000, X, bytearray(5000), X],
        [["\ud800"] * 2, X, X],
        [X] * 1000,
    ],
    ids=range(11),
)
def test_what_is_shared_comes_back_as_one(put: Any, value: Any) -> None:
    stored = put(value)
    assert unpack_tree(stored.tree).version == 2
    back = stored.get()
    pairs = list(containers(value, back))
    of: dict[int, int] = {}
    for first, other in pairs:
        assert type(first) is type(other)
        assert of.setdefault(id(first), id(other)) == id(other), "shared, and comes back as two"
    assert len(set(of.values())) == len(of), "two, and come back as one"
    assert same(back, value)


def containers(value: Any, back: Any) -> Iterator[tuple[Any, Any]]:
    """The lists, dictionaries and sets in a value, each with its decoded counterpart."""
    if isinstance(value, (list, dict, set)):
        yield value, back
    if isinstance(value, (list, tuple)):
        for original, other in zip(value, back, strict=True):
            yield from containers(original, other)
    if isinstance(value, dict):
        for original, other in zip(value.values(), back.values(), strict=True):
            yield from containers(original, other)


def test_equal_is_not_shared_and_is_written_as_ever(put: Any) -> None:
    stored = put([[1, [2]], [1, [2]], (), (), {}, {}])
    assert unpack_tree(stored.tree).version == 1, "older programs read it"
    back = stored.get()
    assert back[0] is not back[1]
    assert back[4] is not back[5]


SIZES = pytest.mark.parametrize("size", [0, 3, 64, 5000], ids=["empty", "inline", "child", "large"])


@SIZES
@pytest.mark.parametrize("make", [np.zeros, bytearray], ids=["array", "bytearray"])
def test_a_value_with_a_codec_of_its_own_that_occurs_again_comes_back_as_one(put: Any, make: Any, size: int) -> None:
    shared, alone, container = make(size), make(size), [1, [2]]
    for value in (
        [shared, alone, shared],
        {"layer": {"w": shared}, "params": (shared, alone)},
        [shared, container, {"c": container, "s": shared}, alone],
    ):
        back = put(value).get(copy="on_write")
        leaves, originals = list(own_leaves(back)), list(own_leaves(value))
        assert len(leaves) == len(originals)
        for leaf, original in zip(leaves, originals, strict=True):
            assert type(leaf) is type(original)
            assert len(leaf) == size
            assert [leaf is other for other in leaves] == [original is other for other in originals]


def own_leaves(value: Any) -> Iterator[Any]:
    """The arrays and byte arrays in a value."""
    if isinstance(value, (np.ndarray, bytearray)):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from own_leaves(each)


def test_an_array_in_an_array_of_objects_and_beside_it_comes_back_as_one(round_trip: Any) -> None:
    shared = np.zeros(3)
    objects = np.empty(2, dtype=object)
    objects[:] = [shared, [shared]]
    back = round_trip([objects, shared, {"o": objects}], allow_pickle=True)
    assert back[0] is back[2]["o"]
    assert back[0][0] is back[1]
    assert back[0][1][0] is back[1]


def test_values_that_cannot_be_modified_are_written_once_if_they_occur_again(put: Any) -> None:
    scalar = np.float64(1.5)
    stored = put([scalar] * 1000)
    assert len(unpack_tree(stored.tree).children) == 1
    assert stored.get() == [1.5] * 1000


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(first=nested, second=nested)
def test_sharing_within_any_nesting(round_trip: Any, first: Any, second: Any) -> None:
    shared: list[Any] = [first]
    back = round_trip({"a": [second, shared, (shared, second)], "b": shared})
    assert same(back, {"a": [second, shared, (shared, second)], "b": shared})
    assert back["a"][1] is back["b"] is back["a"][2][0]


def test_a_place_that_is_not_there_is_damage(put: Any) -> None:
    stored = put([X, X])
    assert stored.tree.count(struct.pack("<I", 1)) == 1  # X's number: containers are numbered as they end
    for place in (2, 3, 1 << 31):
        damaged = type(stored)(stored.tree.replace(struct.pack("<I", 1), struct.pack("<I", place)), [], stored.codec)
        with pytest.raises(CorruptData, match="plain data cannot be read"):
            damaged.get()


def test_nesting_without_end_is_refused(put: Any) -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    for allow_pickle in (False, True):
        with pytest.raises(UnsupportedType, match=r"levels deep|too deeply|cannot be stored"):
            put(value, allow_pickle=allow_pickle)


def test_sharing_without_end_is_refused_where_pickle_is_off(put: Any, round_trip: Any) -> None:
    value: Any = (1,)
    for _ in range(60):
        value = (value, value)
    with pytest.raises(UnsupportedType, match="repeats the same containers"):
        put(value)
    assert round_trip(value, allow_pickle=True)[0][0][1][1] is not None
