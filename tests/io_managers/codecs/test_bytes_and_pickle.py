"""Byte strings, and values that only pickle supports: buffers stay out of the pickle, and parts with a codec use it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entrepot.codec import CopyMode, unpack_tree
from entrepot.errors import CorruptData, UnsupportedType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


def view_of(array: Any) -> memoryview:
    return memoryview(array)


@dataclasses.dataclass
class Holder:
    """An object that only pickle supports."""

    value: Any = None
    other: Any = None


class Slotted:
    """An object with slots, a state of its own, and one of its parts twice."""

    __slots__ = ("first", "second")

    def __init__(self, part: Any) -> None:
        self.first = part
        self.second = part

    def __getstate__(self) -> Any:
        return {"part": self.first}

    def __setstate__(self, state: Any) -> None:
        self.first = self.second = state["part"]


class Named(dict[str, Any]):
    """A subclass of a plain type, with an attribute."""

    label: Any = None


class Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


class Local:
    pass


@st.composite
def named(draw: Any, inner: st.SearchStrategy[Any]) -> Named:
    value = Named(draw(st.dictionaries(st.text(max_size=5), inner, max_size=3)))
    value.label = draw(inner)
    return value


parts = (
    st.none()
    | st.integers()
    | st.text(max_size=20)
    | st.integers(0, 10_000).map(lambda size: bytes(range(256)) * (size // 256))
    | hnp.arrays(st.sampled_from(["i1", "f8", "c16", "M8[s]", "<U3", "?"]), hnp.array_shapes(max_dims=3, max_side=9))
    | st.integers(0, 3000).map(np.arange)
    | st.integers(0, 3000).map(lambda size: pa.table({"n": np.arange(size)}).slice(size // 3))
    | st.integers(0, 3000).map(lambda size: pd.DataFrame({"n": np.arange(size), "t": "x"}))
    | st.integers(0, 3000).map(lambda size: pl.DataFrame({"n": np.arange(size)}))
)
objects = st.recursive(
    parts,
    lambda inner: (
        st.builds(Holder, inner, inner)
        | inner.map(Slotted)
        | named(inner)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(back: Any, value: Any) -> bool:
    """Exact equality of generated objects: types, parts, and that what is one part twice is so again."""
    if type(back) is not type(value):
        return False
    if isinstance(value, np.ndarray):
        return (back.dtype, back.shape, back.tobytes()) == (value.dtype, value.shape, value.tobytes())
    if isinstance(value, (pa.Table, pd.DataFrame, pl.DataFrame)):
        return bool(back.equals(value))
    if isinstance(value, Holder):
        return same(back.value, value.value) and same(back.other, value.other)
    if isinstance(value, Slotted):
        return back.first is back.second and same(back.first, value.first)
    if isinstance(value, dict):
        labels = not isinstance(value, Named) or same(back.label, value.label)
        return labels and list(back) == list(value) and all(same(back[key], value[key]) for key in value)
    if isinstance(value, (list, tuple)):
        return len(back) == len(value) and all(map(same, back, value))
    return bool(back == value)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(value=objects, other=objects, copy=st.sampled_from(["never", "on_write", "always"]))
def test_any_object_comes_back_the_same(round_trip: Any, value: Any, other: Any, copy: CopyMode) -> None:
    assert same(round_trip(value, copy, allow_pickle=True), value)
    shared = Holder(value, other)
    back = round_trip([shared, Holder(shared, other)], copy, allow_pickle=True)
    assert same(back, [shared, Holder(shared, other)])
    assert back[1].value is back[0]
    assert (back[1].other is back[0].other) or isinstance(other, (int, str, bytes, tuple))


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 1_000_000])
@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("copy", ["never", "on_write", "always"])
def test_byte_strings(put: Any, size: int, kind: Any, copy: CopyMode) -> None:
    value = kind(bytes(range(256)) * (size // 256 + 1))[:size]
    stored = put(value)
    back = stored.get(copy)
    assert type(back) is kind
    assert back == value
    assert stored.nbytes == (size if size > 4096 else 0)


@pytest.mark.parametrize(
    "view",
    [
        memoryview(b"x" * 10_000),
        memoryview(b"abc"),
        memoryview(b""),
        memoryview(bytes(4096 * 8)).cast("d", (64, 64)),
        view_of(np.arange(20_000, dtype="i4").reshape(100, 200))[::2],
        view_of(np.array(5.0)),
    ],
    ids=lambda view: f"{view.format}{view.shape}",
)
def test_memoryviews_keep_format_and_shape(put: Any, view: memoryview) -> None:
    stored = put(view)
    back = stored.get()
    assert (type(back), back.format, back.shape, back.readonly) == (memoryview, view.format, view.shape, True)
    assert back.tobytes() == view.tobytes()
    assert not stored.get("on_write").readonly
    if stored.buffers:
        back = stored.get()
        assert stored.holds(np.asarray(back).__array_interface__["data"][0], back.nbytes)


def test_a_memoryview_of_a_structure_says_what_to_put(put: Any) -> None:
    view = view_of(np.zeros(3, [("a", "i4"), ("b", "f8")]))
    for allow_pickle in (False, True):
        with pytest.raises(UnsupportedType, match=r"NumPy array|cannot be stored"):
            put(view, allow_pickle=allow_pickle)


def test_buffers_of_a_pickled_object_stay_outside_of_the_pickle(put: Any) -> None:
    value = Holder(np.arange(100_000), {"small": np.arange(3)})
    stored = put(value, allow_pickle=True)
    back = stored.get()
    assert (back.value == value.value).all()
    assert (back.other["small"] == np.arange(3)).all()
    assert len(stored.tree) < 1000
    assert stored.holds(back.value.__array_interface__["data"][0], back.value.nbytes)
    assert not back.value.flags.writeable
    assert stored.get("always").value.flags.writeable


def test_identity_inside_a_pickled_object_is_kept(round_trip: Any) -> None:
    table = pa.table({"a": np.arange(10_000)})
    value = Holder(table, [table])
    back = round_trip(value, allow_pickle=True)
    assert back.value is back.other[0]


@pytest.mark.parametrize(
    ("value", "codec"),
    [
        (np.arange(1_000_000).reshape(1000, 1000)[::2, ::2], "numpy.ndarray"),
        (pa.table({"a": np.arange(1_000_000)}).slice(10, 1000), "arrow.table"),
        (pa.array(np.arange(10_000)), "arrow.array"),
        (pd.DataFrame({"a": np.arange(10_000)}), "pandas.DataFrame"),
        (pd.Series(np.arange(10_000)), "pandas.Series"),
        (pl.DataFrame({"a": np.arange(10_000)}), "polars.DataFrame"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_with_a_codec_inside_an_object_go_through_it(put: Any, value: Any, codec: str) -> None:
    stored = put(Holder(value), allow_pickle=True)
    assert [node.codec for node in unpack_tree(stored.tree).children] == [codec]
    back = stored.get().value
    assert type(back) is type(value)
    if isinstance(value, np.ndarray):
        assert (back == value).all()
        assert stored.holds(back.__array_interface__["data"][0], back.nbytes)
    else:
        assert back.equals(value)
    assert stored.nbytes < 3_000_000


def test_object_arrays_inside_an_object(round_trip: Any) -> None:
    strided = np.arange(40_000).reshape(200, 200)[:, ::2]
    inner = np.empty(2, object)
    inner[:] = [Holder(1), strided]
    back = round_trip(Holder(inner), allow_pickle=True)
    assert back.value[0] == Holder(1)
    assert (back.value[1] == strided).all()


def test_what_cannot_be_pickled_says_what_to_do(put: Any) -> None:
    for value in (lambda: 1, Unpicklable(), [Unpicklable()], Holder(memoryview(b"x"))):
        with pytest.raises(UnsupportedType, match="top level of a module, or register a codec"):
            put(value, allow_pickle=True)


def test_pickled_data_is_refused_where_pickling_is_off(put: Any) -> None:
    for value in (Holder(1), {"a": [Holder(1)]}):
        stored = put(value, allow_pickle=True)
        with pytest.raises(UnsupportedType, match="ENTREPOT_ALLOW_PICKLE"):
            stored.get(allow_pickle=False)


def test_a_class_that_is_not_there_any_more(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = put(Local(), allow_pickle=True)
    monkeypatch.delattr(f"{__name__}.Local")
    with pytest.raises(UnsupportedType, match="cannot be imported here"):
        stored.get()


def test_a_truncated_pickle_is_corrupt(put: Any) -> None:
    stored = put(Holder("x" * 10_000), allow_pickle=True)
    stored.buffers[0] = stored.buffers[0][:-100]
    with pytest.raises(CorruptData, match="pickled object"):
        stored.get()
