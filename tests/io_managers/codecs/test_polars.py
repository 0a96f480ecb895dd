"""Polars values: dtypes, chunks and sortedness flags survive, without copying."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from entrepot._codecs.builtin import codec_specs as builtin_specs
from entrepot.codec import CodecRegistry, CopyMode, Decoder, Encoder, Node, unpack_tree
from entrepot.errors import CorruptData, UnsupportedType
from entrepot_io.codecs import codec_specs, polars_frames
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing.parametric import dataframes, series

NEWEST = pl.CompatLevel.newest()
REGISTRY = CodecRegistry([*builtin_specs(), *codec_specs()], entry_points=False)


def _columns() -> dict[str, pl.Series]:
    columns: dict[str, pl.Series] = {}
    integers = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]
    wide = [getattr(pl, name) for name in ("Int128", "UInt128") if hasattr(pl, name)]
    for kind in (*integers, pl.Float32, pl.Float64, *wide):
        columns[str(kind)] = pl.Series([1, None, 3, 100], dtype=kind)
    for kind in wide:
        columns[f"large {kind}"] = pl.Series([2**100, None, 0, 1], dtype=kind)
    words = ["a", None, "b" * 30, ""]
    columns["String"] = pl.Series(words)
    columns["Binary"] = pl.Series([None if word is None else word.encode() for word in words])
    columns["Categorical"] = pl.Series(["a", None, "b", "a"], dtype=pl.Categorical)
    columns["Enum"] = pl.Series(["x", None, "y", "x"], dtype=pl.Enum(["y", "x", "unused"]))
    columns["Decimal"] = pl.Series([Decimal("1.5"), None] * 2, dtype=pl.Decimal(20, 3))
    columns["Array"] = pl.Series([[1, 2], None, [3, 4], [5, 6]], dtype=pl.Array(pl.Int16, 2))
    columns["List"] = pl.Series([[1], None, [], [2, 3]])
    columns["Struct"] = pl.Series([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}, {"a": 1, "b": []}])
    columns["List of Categorical"] = pl.Series([["a"], None, ["b"], []], dtype=pl.List(pl.Categorical))
    columns["Struct of Enum"] = pl.Series([{"e": "y"}] * 4, dtype=pl.Struct({"e": pl.Enum(["y", "x"])}))
    columns["Date"] = pl.Series([dt.date(2020, 1, 1), None] * 2)
    columns["Time"] = pl.Series([dt.time(1, 2, 3, 4), None] * 2)
    zoned = pl.Series([dt.datetime(2020, 1, 1), None] * 2).dt.replace_time_zone("Europe/Berlin")
    columns["Datetime in a zone"] = zoned.dt.cast_time_unit("ns")
    columns["Duration"] = pl.Series([dt.timedelta(1), None] * 2, dtype=pl.Duration("ms"))
    columns["Null"] = pl.Series([None] * 4)
    columns["Boolean"] = pl.Series([True, None, False, True])
    columns["Object"] = pl.Series([1, "a", None, (1, 2)], dtype=pl.Object)
    return {name: column.alias(name) for name, column in columns.items()}


COLUMNS = _columns()


def assert_same(back: Any, value: Any) -> None:
    """Exact equality of dtypes, values and sortedness flags."""
    assert type(back) is type(value)
    if isinstance(value, pl.Series):
        assert back.name == value.name
        back, value = back.to_frame(), value.to_frame()
    assert back.schema == value.schema
    assert back.shape == value.shape
    for column, other in zip(back.get_columns(), value.get_columns(), strict=True):
        if value.schema[column.name] in (pl.Object, pl.Categorical):  # older releases compare these by code
            assert column.to_list() == other.to_list()
        else:
            assert column.equals(other, check_dtypes=True, null_equal=True)
        for flag, descending in (("SORTED_ASC", False), ("SORTED_DESC", True)):
            if column.flags[flag] != other.flags[flag]:  # importing chunks of one row or of nulls, Polars sees it
                assert other.n_chunks() > 1
                assert column.flags[flag]
                assert other.is_sorted(descending=descending)


@pytest.mark.parametrize("name", COLUMNS)
def test_series_and_frames_of_all_dtypes(round_trip: Any, name: str) -> None:
    value = COLUMNS[name]
    for part in (value, value.slice(1, 2), value.clear(), value.to_frame(), value.alias("")):
        assert_same(round_trip(part), part)


def test_a_frame_of_all_dtypes(round_trip: Any) -> None:
    value = pl.DataFrame(COLUMNS)
    for part in (value, value[1:3], value.reverse(), value.clear(), value.select(reversed(value.columns))):
        assert_same(round_trip(part), part)


@pytest.mark.parametrize("name", ["Array", "List", "Struct", "Struct of Enum"])
def test_slices_of_nested_columns(round_trip: Any, name: str) -> None:
    value = pl.DataFrame({"n": range(4), name: COLUMNS[name]})
    for start in range(4):
        for length in range(4):
            part = value.slice(start, length)
            assert round_trip(part).rows() == part.rows()


PROPERTY = settings(
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
GENERATED = [
    *(pl.Int8, pl.Int16, pl.Int64, pl.UInt8, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64, pl.Boolean),
    *(pl.String, pl.Binary, pl.Date, pl.Time, pl.Datetime, pl.Duration, pl.Decimal, pl.Categorical, pl.Enum, pl.Null),
    *(pl.List, pl.Array, pl.Struct),
]

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


@PROPERTY
@given(
    data=st.data(), frame=dataframes(allowed_dtypes=GENERATED, max_size=9), copy=st.sampled_from(["never", "always"])
)
def test_any_frame_and_slice_comes_back(round_trip: Any, data: Any, frame: Any, copy: CopyMode) -> None:
    start, length = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    order = data.draw(st.permutations(frame.columns))
    for value in (frame, frame.slice(start, length), frame.select(order), pl.concat([frame, frame])):
        assert_same(round_trip(value, copy), value)  # not its chunks: Polars joins those of one row


@PROPERTY
@given(data=st.data(), values=series(allowed_dtypes=GENERATED, name=names, max_size=9))
def test_any_series_and_slice_comes_back(round_trip: Any, data: Any, values: Any) -> None:
    start, length = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    for value in (values, values.slice(start, length), values.rechunk()):
        assert_same(round_trip(value), value)


@pytest.mark.parametrize("value", [pl.DataFrame(), pl.DataFrame({"": [1]}), pl.DataFrame({"": [1], "b": [2]})], ids=str)
def test_shapes_and_names(round_trip: Any, value: pl.DataFrame) -> None:
    assert_same(round_trip(value), value)


@pytest.mark.parametrize(
    "chunks", [([1], [2, 0]), ([2], [1, 9]), ([None], [None, 0]), ([None] * 3, [None] * 2)], ids=str
)
def test_chunks_that_polars_sees_are_sorted(round_trip: Any, chunks: tuple[list[int | None], ...]) -> None:
    parts = [pl.DataFrame({"a": rows}, schema={"a": pl.Int8}) for rows in (chunks[0], [*chunks[1], 5])]
    value = pl.concat(parts, rechunk=False).slice(0, len(chunks[0]) + max(1, len(chunks[1]) - 1))
    assert value["a"].n_chunks() == 2
    assert True not in value["a"].flags.values()
    back = round_trip(value)
    assert_same(back, value)
    assert back["a"].to_list() == value["a"].to_list()


def test_chunks_stay_apart(round_trip: Any) -> None:
    part = pl.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    value = pl.concat([part, part], rechunk=False)
    back = round_trip(value)
    assert_same(back, value)
    assert back.n_chunks() == value.n_chunks() == 2


def test_sorted_columns_stay_known_as_sorted(round_trip: Any) -> None:
    value = (
        pl.DataFrame({"a": [1, 2], "b": [4, 3], "c": [5, 9]}).sort("a").with_columns(pl.col("b").sort(descending=True))
    )
    back = round_trip(value)
    assert_same(back, value)
    assert back["b"].flags["SORTED_DESC"]
    assert_same(round_trip(value["a"]), value["a"])


def test_columns_are_not_copied(put: Any) -> None:
    value = pl.DataFrame(
        {
            "n": np.arange(10_000),
            "f": np.arange(10_000) / 2,
            "s": [f"a text longer than a view {n}" for n in range(10_000)],
        }
    )
    stored = put(value)
    back = stored.get()
    assert_same(back, value)
    for name in ("n", "f"):
        array = back[name].to_numpy(allow_copy=False)
        assert stored.holds(array.__array_interface__["data"][0], array.nbytes)
    views, text = back.to_arrow(compat_level=NEWEST)["s"].chunk(0).buffers()[1:3]
    assert stored.holds(views.address, views.size)
    assert stored.holds(text.address, text.size)


CATEGORIES = [f"category {number}" for number in range(1100)]
CODES = np.arange(10_000) % len(CATEGORIES)


@pytest.fixture
def _enums_as_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store Enum columns of any size as codes."""
    monkeypatch.setattr(polars_frames, "_CODES_ROWS", 0)


def test_the_codes_of_an_enum_are_not_copied(put: Any) -> None:
    words = pl.Series(CATEGORIES, dtype=pl.Enum(CATEGORIES))
    value = pl.DataFrame({"n": CODES, "e": words[CODES]})
    stored = put(value)
    assert len(stored.tree) < 1000  # the categories are not part of the metadata
    back = stored.get()
    assert_same(back, value)
    if not hasattr(words.cat, "to"):
        pytest.skip("this Polars has no way from codes to an Enum without a copy")
    codes = back["e"].to_physical().to_numpy(allow_copy=False)
    assert stored.holds(codes.__array_interface__["data"][0], codes.nbytes)


@pytest.mark.parametrize(
    ("rows", "categories", "as_codes"), [(262_144, 2, True), (262_143, 2, False), (10, 1024, True)]
)
def test_large_enums_are_stored_as_codes(put: Any, rows: int, categories: int, as_codes: bool) -> None:
    words = pl.Series(CATEGORIES[:categories], dtype=pl.Enum(CATEGORIES[:categories]))
    value = words[np.arange(rows) % categories].to_frame()
    stored = put(value)
    assert_same(stored.get(), value)
    assert (unpack_tree(stored.tree).version == 2) is as_codes


@pytest.mark.usefixtures("_enums_as_codes")
@pytest.mark.parametrize("name", COLUMNS)
def test_frames_with_enums_as_codes(round_trip: Any, name: str) -> None:
    value = pl.DataFrame({"": COLUMNS["Enum"], "other": COLUMNS[name], "e": COLUMNS["Enum"].alias("e")})
    for part in (value, value[1:3], value.clear(), value.reverse()):
        assert_same(round_trip(part), part)


@pytest.mark.usefixtures("_enums_as_codes")
def test_enums_in_chunks_beside_columns_that_are_lists(round_trip: Any) -> None:
    names = pl.Series("e", ["y", None, "x"], dtype=pl.Enum(["x", "y"]))
    other = pl.Series("f", ["z", "z", None], dtype=pl.Enum(["z"]))
    part = pl.DataFrame([pl.Series("o", [2**100] * 3, dtype=pl.Int128), names, pl.Series("i", [1, 2, 3]), other])
    value = pl.concat([part, part], rechunk=False)
    back = round_trip(value)
    assert_same(back, value)
    assert back["e"].n_chunks() == 2
    in_order = value.sort("e")
    assert round_trip(in_order)["e"].flags["SORTED_ASC"] == in_order["e"].flags["SORTED_ASC"]


def test_enums_of_the_first_version_are_still_read() -> None:
    value = pl.DataFrame({"e": pl.Series(["y", None, "x"] * 100, dtype=pl.Enum(["x", "y"]))})
    encoder = Encoder(REGISTRY)
    table = encoder.encode(value.to_arrow(compat_level=NEWEST))
    node = Node("polars.DataFrame", 1, [value.height, [], []], children=[table])
    decoder = Decoder(REGISTRY, encoder.buffers.__getitem__, len(encoder.buffers))
    assert_same(decoder.decode(node), value)


@pytest.mark.usefixtures("_enums_as_codes")
@pytest.mark.parametrize("code", [2, 255])
def test_a_code_without_a_category_is_corrupt_data(code: int) -> None:
    value = pl.DataFrame({"e": pl.Series(["y", "x"] * 1000, dtype=pl.Enum(["x", "y"]))})
    encoder = Encoder(REGISTRY)
    node = encoder.encode(value)
    buffers = [bytearray(memoryview(buffer).tobytes()) for buffer in encoder.buffers]
    (codes,) = (buffer for buffer in buffers if len(buffer) >= 2000)
    codes[1000] = code
    with pytest.raises(CorruptData):
        Decoder(REGISTRY, buffers.__getitem__, len(buffers)).decode(node)


def test_a_small_slice_does_not_keep_its_parent(put: Any) -> None:
    value = pl.DataFrame({"n": np.arange(50_000), "s": [f"a text longer than a view {n}" for n in range(50_000)]})
    for part in (value[5:9], value.filter(pl.col("n") == 7), value.tail(3)):
        stored = put(part)
        assert stored.nbytes < 2000
        assert_same(stored.get(), part)


def test_a_plan_is_not_data(put: Any, round_trip: Any) -> None:
    plan = pl.LazyFrame({"a": [1, 2]}).filter(pl.col("a") > 1)
    with pytest.raises(UnsupportedType, match=r"collect\(\)"):
        put(plan)
    assert round_trip(plan, allow_pickle=True).collect().to_dict(as_series=False) == {"a": [2]}


def test_objects_in_columns(put: Any, round_trip: Any) -> None:
    value = pl.DataFrame({"a": [1, 2], "o": pl.Series([dt.timezone(dt.timedelta(hours=1)), None], dtype=pl.Object)})
    back = round_trip(value, allow_pickle=True)
    assert back["o"].to_list() == value["o"].to_list()
    with pytest.raises(UnsupportedType, match="pickling is switched off"):
        put(value)


def test_a_name_that_arrow_cannot_hold_is_pickled(put: Any, round_trip: Any) -> None:
    for value in (pl.Series("a\0b", [1, 2]), pl.DataFrame({"a\0b": [1, 2]})):
        assert_same(round_trip(value, allow_pickle=True), value)
        with pytest.raises(UnsupportedType, match="Arrow cannot represent the columns"):
            put(value)


@pytest.mark.skipif(not hasattr(pl, "Int128"), reason="this Polars has no 128-bit integers")
def test_what_arrow_has_no_form_for_is_pickled(put: Any, round_trip: Any) -> None:
    value = pl.DataFrame({"a": pl.Series([[2**100]], dtype=pl.List(pl.Int128))})
    back = round_trip(value, allow_pickle=True)
    assert back.schema == value.schema
    assert back.equals(value)
    with pytest.raises(UnsupportedType, match="cast them"):
        put(value)


@pytest.mark.parametrize(
    "dtype",
    [
        pl.Array(pl.Int64, 0),
        pl.Array(pl.Array(pl.Int64, 0), 2),
        pl.List(pl.Array(pl.Int64, 0)),
        pl.Struct({"a": pl.Array(pl.Int64, 0)}),
    ],
    ids=str,
)
def test_arrays_of_no_elements_are_refused_rather_than_never_read(put: Any, round_trip: Any, dtype: Any) -> None:
    frame = pl.DataFrame({"n": [1, 2], "e": pl.Series([None, None], dtype=dtype)})
    for value in (frame, frame["e"], {"a": frame}):
        with pytest.raises(
            UnsupportedType, match=r"'e' has the dtype .*, an Array of no elements.*: cast it to a List"
        ):
            put(value, allow_pickle=True)  # Polars cannot read its pickle either
    assert_same(round_trip(frame.drop("e")), frame.drop("e"))
