"""pandas objects: exact round trips of dtypes, indexes, names, frequencies and attributes, without copying."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import zoneinfo
from decimal import Decimal
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from entrepot.codec import CopyMode
from entrepot.errors import UnsupportedType
from entrepot_io.codecs import pandas_frames
from pandas_equality import assert_same

ROWS = 100
VERSION = tuple(int(part) for part in pd.__version__.split(".")[:2])


INDEXES: dict[str, pd.Index] = {
    "range": pd.RangeIndex(3, 30, 4, name="q"),
    "empty range": pd.RangeIndex(0),
    "int": pd.Index([1, 2, 3]),
    "uint8": pd.Index(np.array([1, 2], "u1")),
    "float with tuple name": pd.Index([1.5, np.nan], name=("a", 1)),
    "text": pd.Index(["a", "b"]),
    "text beyond ASCII": pd.Index(["é", "", "日本", "\0"]),
    "text with an absent value": pd.Index(["a", None], dtype="str" if VERSION >= (3, 0) else "string"),
    "text objects": pd.Index(["a", None] * 50, dtype=object),
    "mixed objects": pd.Index([1, "a", None, (1, 2)], dtype=object, tupleize_cols=False),
    "dates as objects": pd.Index([dt.date(2020, 1, 1), Decimal(1)], dtype=object),
    "empty objects": pd.Index([], dtype=object),
    "bool": pd.Index([True, False]),
    "daily": pd.date_range("2020", periods=5),
    "no frequency": pd.DatetimeIndex(["2020-01-01", "2021-01-05"]),
    "empty dates": pd.DatetimeIndex([]),
    "seconds": pd.date_range("2020", periods=3).as_unit("s"),
    "hourly in a zone": pd.date_range("2020", periods=5, freq="h", tz="Europe/Berlin"),
    "zoneinfo": pd.date_range("2020", periods=3, tz=zoneinfo.ZoneInfo("America/New_York")),
    "utc": pd.date_range("2020", periods=3, tz="UTC"),
    "timezone.utc": pd.date_range("2020", periods=3, tz=dt.timezone.utc),
    "fixed offset": pd.date_range("2020", periods=3, tz=dt.timezone(dt.timedelta(hours=2))),
    "business days": pd.date_range("2020", periods=30, freq="B"),
    "month ends": pd.date_range("2020", periods=30, freq="2ME"),
    "timedeltas": pd.timedelta_range("1h", periods=4),
    "months": pd.period_range("2020", periods=3, freq="M"),
    "two hours": pd.period_range("2020", periods=3, freq="2h"),
    "intervals": pd.interval_range(0, 5),
    "intervals of dates": pd.IntervalIndex.from_breaks(pd.date_range("2020", periods=4), closed="both"),
    "categories": pd.CategoricalIndex(["a", "b", None], categories=["b", "a", "c"], ordered=True),
    "multi": pd.MultiIndex.from_product([["a", "b"], [1, 2, 3]], names=["x", None]),
    "multi with gaps": pd.MultiIndex.from_arrays([[1, None, 2], ["a", "b", None]]),
    "multi of dates": pd.MultiIndex.from_product([pd.date_range("2020", periods=2, tz="UTC"), ["q"]]),
    "multi, part of it": pd.MultiIndex.from_product([list("abc"), range(400)])[5:20],
    "nullable": pd.Index([1, None], dtype="Int64"),
    "arrow": pd.Index([1, None], dtype="int64[pyarrow]"),
}


@pytest.mark.parametrize("copy", ["never", "on_write"])
@pytest.mark.parametrize("name", INDEXES)
def test_indexes(round_trip: Any, name: str, copy: CopyMode) -> None:
    assert_same(round_trip(INDEXES[name], copy), INDEXES[name])


def test_pytz_zones(round_trip: Any) -> None:
    pytz = pytest.importorskip("pytz")
    for zone in (pytz.UTC, pytz.timezone("Asia/Tokyo"), pytz.timezone("Europe/Berlin")):
        index = pd.date_range("2020", periods=3, tz=zone)
        back = round_trip(index)
        assert_same(back, index)
        assert type(back.tz) is type(index.tz)


def _columns() -> dict[str, Any]:
    half = ROWS // 2
    array: Any = pd.array
    text = [f"text {number}" for number in range(ROWS)]
    columns: dict[str, Any] = {
        "int": np.arange(ROWS),
        "float": np.arange(ROWS) / 3,
        "float2": np.arange(ROWS) / 7,
        "int8": np.arange(ROWS, dtype="i1"),
        "bool": np.arange(ROWS) % 2 == 0,
        "complex": np.arange(ROWS) * 1j,
        "datetime": pd.date_range("2020", periods=ROWS),
        "milliseconds": np.arange(ROWS).astype("M8[ms]"),
        "timedelta": pd.timedelta_range("1h", periods=ROWS),
        "zoned": pd.date_range("2020", periods=ROWS, tz="Europe/Berlin"),
        "period": pd.period_range("2020", periods=ROWS, freq="D"),
        "interval": pd.interval_range(0, ROWS),
        "categorical": pd.Categorical(["a", "b"] * half, categories=["b", "a", "unused"], ordered=True),
        "categories of numbers": pd.Categorical([1.5, None] * half),
        "Int32": array([1, None] * half, dtype="Int32"),
        "UInt8": array([1, None] * half, dtype="UInt8"),
        "Float64": array([1.5, None] * half, dtype="Float64"),
        "boolean": array([True, None] * half, dtype="boolean"),
        "string[python]": array(["a", None] * half, dtype="string[python]"),
        "string[pyarrow]": array(["a", None] * half, dtype="string[pyarrow]"),
        "arrow int": array([1, None] * half, dtype="int64[pyarrow]"),
        "arrow list": array([[1], None] * half, dtype=pd.ArrowDtype(pa.list_(pa.int8()))),
        "arrow dictionary": array(["a", None] * half, dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
        "text": np.array(text, object),
        "text or None": np.array([*text[1:], None], object),
        "text or NaN": np.array([*text[1:], np.nan], object),
        "text or NA": np.array([*text[1:], pd.NA], object),
        "None only": np.array([None] * ROWS, object),
        "surrogates": np.array(["\ud800"] * ROWS, object),
        "mixed": np.array([1, "a", None, True] * (ROWS // 4), object),
        "dates": np.array([dt.date(2020, 1, 1), Decimal("1.50")] * half, object),
    }
    if VERSION >= (2, 3):
        for storage in ("python", "pyarrow"):
            kind = pd.StringDtype(storage, na_value=np.nan)
            columns[f"str over {storage}"] = array(["a", None] * half, dtype=kind)
    return columns


def series(values: Any, **options: Any) -> Any:
    """A Series without pandas' type inference for object arrays."""
    is_object = isinstance(values, np.ndarray) and values.dtype == object
    return pd.Series(values, dtype=object if is_object else None, **options)


COLUMNS = _columns()


def frame() -> pd.DataFrame:
    return pd.DataFrame({name: series(values) for name, values in COLUMNS.items()})


@pytest.mark.parametrize("copy", ["never", "on_write"])
@pytest.mark.parametrize("name", COLUMNS)
def test_series_of_all_dtypes(round_trip: Any, name: str, copy: CopyMode) -> None:
    value = series(COLUMNS[name], name=name, index=pd.Index(range(ROWS), dtype="i4"))
    value.attrs = {"unit": [name], "n": 1}
    for part in (value, value.iloc[::2], value.iloc[:0], value.iloc[-3:], value.to_frame()):
        assert_same(round_trip(part, copy), part)
    if not isinstance(value.dtype, np.dtype):
        assert_same(round_trip(value.array, copy), value.array)


@pytest.mark.parametrize("name", ["text", "text or None", "text or NaN", "text or NA", "mixed", "dates", "surrogates"])
def test_objects_come_back_as_the_same_objects(round_trip: Any, name: str) -> None:
    value = series(COLUMNS[name])
    back = round_trip(value)
    assert list(map(type, back)) == list(map(type, value))
    assert all(
        restored is other for restored, other in zip(back, value, strict=True) if other is None or other is pd.NA
    )


def test_text_of_mixed_absence_keeps_both_kinds(round_trip: Any) -> None:
    value = series(np.array(["a", None, np.nan, 1.5] * 50, object))
    back = round_trip(value)
    assert [type(item) for item in back] == [type(item) for item in value]


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value,
        lambda value: value.copy(),
        lambda value: value.iloc[5:50:3],
        lambda value: value.iloc[:, ::-1],
        lambda value: value.head(0),
        lambda value: value[[]],
        lambda value: value.set_index(["int", "categorical"]),
        lambda value: pd.concat([value, value], axis=1),
        lambda value: value[["float", "float2", "int"]].T,
        lambda value: value.rename_axis(columns="label"),
        lambda value: value.set_flags(allows_duplicate_labels=False),
    ],
    ids=[
        "all",
        "consolidated",
        "rows",
        "reversed",
        "empty",
        "no columns",
        "multi",
        "twice",
        "turned",
        "named",
        "flags",
    ],
)
def test_frames_of_all_dtypes(round_trip: Any, change: Any) -> None:
    value = change(frame())
    value.attrs = {"source": ("a", 1)}
    for copy in ("never", "on_write"):
        assert_same(round_trip(value, copy), value)


@pytest.mark.parametrize(
    "value",
    [
        pd.DataFrame(),
        pd.DataFrame(index=[1, 2]),
        pd.DataFrame(columns=["a", "a"]),
        pd.DataFrame(np.arange(12.0).reshape(3, 4), columns=pd.MultiIndex.from_product([["a", "b"], [1, 2]])),
        pd.DataFrame([[1, 2.5, 3]], columns=["a", "a", "b"], index=pd.DatetimeIndex(["2020-01-01"])),
        pd.DataFrame(np.arange(12.0).reshape(3, 4)).iloc[:, 1:3],
        pd.DataFrame(np.arange(12.0).reshape(3, 4)).iloc[::2, ::-1],
        pd.DataFrame(np.asfortranarray(np.arange(12.0).reshape(3, 4))),
        pd.Series(dtype="f8"),
        pd.Series([1], name=("a", 2)),
        pd.Series([1], name=3.5),
    ],
    ids=range(11),
)
def test_shapes_and_labels(round_trip: Any, value: Any) -> None:
    for copy in ("never", "always"):
        assert_same(round_trip(value, copy), value)


def _numpy_columns(value: pd.DataFrame) -> list[Any]:
    return [
        column.to_numpy()
        for _, column in value.items()
        if isinstance(column.dtype, np.dtype) and column.dtype != object
    ]


def _interleaved(rows: int = 10_000) -> pd.DataFrame:
    numbers = np.arange(rows)
    return pd.DataFrame(
        {
            "a": numbers,
            "b": numbers / 2,
            "c": numbers + 1,
            "d": numbers / 3,
            "t": numbers.astype("M8[ns]"),
            "z": numbers,
        }
    ).copy()


@pytest.mark.parametrize(
    "value",
    [
        _interleaved(),
        _interleaved()[["a", "c", "z", "b", "d", "t"]].copy(),
        pd.DataFrame(np.arange(500_000.0).reshape(10_000, 50)),
        pd.DataFrame(np.arange(500_000.0).reshape(10_000, 50)).copy(),
        pd.DataFrame({"one": np.arange(10_000)}),
    ],
    ids=["interleaved", "in order", "row by row", "column by column", "one"],
)
def test_columns_are_not_copied_on_get(put: Any, value: pd.DataFrame) -> None:
    stored = put(value)
    back = stored.get()
    assert_same(back, value)
    assert stored.nbytes == sum(column.nbytes for column in _numpy_columns(value))
    for column in _numpy_columns(back):
        assert stored.holds(column.__array_interface__["data"][0])
        assert not column.flags.writeable
    for column in _numpy_columns(stored.get("always")):
        assert stored.holds(column.__array_interface__["data"][0])


@pytest.mark.parametrize("value", [_interleaved(), pd.DataFrame(np.zeros((10_000, 50)))], ids=["mixed", "one dtype"])
def test_consolidated_blocks_are_handed_over_whole(value: pd.DataFrame) -> None:
    from entrepot._codecs.builtin import codec_specs as builtin_specs
    from entrepot.codec import CodecRegistry, encode_value
    from entrepot_io.codecs import codec_specs

    _, buffers, _ = encode_value(value, CodecRegistry([*builtin_specs(), *codec_specs()], entry_points=False))
    handed = {np.frombuffer(buffer, "u1").__array_interface__["data"][0] for buffer in buffers}
    kinds = {column.dtype for column in _numpy_columns(value)}
    assert len(buffers) == len(kinds)
    # Each buffer starts at the first byte of a column of the frame itself: nothing was gathered or copied.
    assert handed <= {column.__array_interface__["data"][0] for column in _numpy_columns(value)}


@pytest.mark.parametrize(
    "name",
    ["zoned", "period", "Int32", "boolean", "Float64", "categorical", "string[pyarrow]", "arrow int", "datetime"],
)
def test_extension_arrays_are_not_copied_on_get(put: Any, name: str) -> None:
    value = pd.concat([series(COLUMNS[name])] * 50, ignore_index=True)
    if name == "categorical":
        value = value.astype(COLUMNS[name].dtype)
    stored = put(value)
    back = stored.get()
    assert_same(back, value)
    array: Any = back.array
    if name in ("string[pyarrow]", "arrow int"):
        for buffer in array.__arrow_array__().chunk(0).buffers():
            assert buffer is None or buffer.size <= 128 or stored.holds(buffer.address, buffer.size)
        return
    plain = array.codes if name == "categorical" else array.asi8 if hasattr(array, "asi8") else array._data
    assert stored.holds(plain.__array_interface__["data"][0], plain.nbytes)


def test_writing_needs_another_copy_mode(put: Any) -> None:
    stored = put(_interleaved())
    back = stored.get()
    with pytest.raises(ValueError, match="read-only"):
        back.iloc[0, 0] = 77
    back = stored.get("on_write")
    back.iloc[0, 0] = 77
    assert back.iloc[0, 0] == 77


@pytest.mark.parametrize(
    "value",
    [
        pd.Series(pd.arrays.SparseArray([0, 0, 1])),
        pd.DataFrame({"a": pd.arrays.SparseArray([0, 0, 1]), "b": [1, 2, 3]}),
        pd.Series([pd.NaT, 1, pd.Timestamp("2020")], dtype=object),
        pd.date_range("2020", periods=3, freq=pd.offsets.CustomBusinessDay(holidays=["2020-01-02"])),
    ],
    ids=["sparse", "sparse column", "timestamps as objects", "custom calendar"],
)
def test_what_needs_pickle(put: Any, round_trip: Any, value: Any) -> None:
    assert_same(round_trip(value, allow_pickle=True), value)
    with pytest.raises(UnsupportedType, match="pickling is switched off"):
        put(value)


def test_subclasses_are_pickled_with_their_type(put: Any, round_trip: Any) -> None:
    value = Labelled({"a": np.arange(10_000)})
    assert put(value, allow_pickle=True).codec == "python.pickle"
    back = round_trip(value, allow_pickle=True)
    assert type(back) is Labelled
    pd.testing.assert_frame_equal(back, value)


class Labelled(pd.DataFrame):
    """A DataFrame subclass, like GeoPandas'."""

    @property
    def _constructor(self) -> Any:
        return Labelled


ONE_BLOCK = pd.DataFrame(np.arange(60.0).reshape(10, 6), columns=list("abcdef"), copy=False)
BLOCKS = {
    "row by row": (ONE_BLOCK, 1),
    "column by column": (pd.DataFrame(np.asfortranarray(ONE_BLOCK.to_numpy()), copy=False), 1),
    "some rows, column by column": (pd.DataFrame(np.asfortranarray(ONE_BLOCK.to_numpy()), copy=False).iloc[2:7], None),
    "some rows": (ONE_BLOCK.iloc[2:7], 1),
    "the same column names": (ONE_BLOCK.set_axis(list("aabbcc"), axis=1), 1),
    "times": (pd.DataFrame(np.arange(20).reshape(10, 2).astype("M8[ns]")), 1),
    "every other row": (ONE_BLOCK.iloc[::2], 1),
    "every other column": (ONE_BLOCK.iloc[:, ::2], None),
    "one column each": (pd.DataFrame({name: np.arange(10.0) for name in "abc"}, copy=False), None),
    "views of one array": (pd.DataFrame({n: ONE_BLOCK.to_numpy()[:, n] for n in range(6)}, copy=False), None),
    "two dtypes": (pd.DataFrame({"a": np.arange(10), "b": np.arange(10.0)}), None),
    "Arrow's integers": (pd.DataFrame({"a": range(10), "b": range(10)}, dtype=pd.ArrowDtype(pa.int64())), None),
    "no rows": (ONE_BLOCK.iloc[:0], None),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_frame_that_is_one_block_is_described_at_once(round_trip: Any, name: str) -> None:
    frame, blocks = BLOCKS[name]
    block = pandas_frames._only_block(frame, *frame.shape)
    assert (block is not None) == (blocks == 1)
    if block is not None:
        np.testing.assert_array_equal(block, frame.to_numpy())
        assert np.shares_memory(block, frame.to_numpy()), "the block was copied"
    pd.testing.assert_frame_equal(round_trip(frame), frame)


READER = """
import sys
import entrepot
with entrepot.connect(sys.argv[1], scope="tests") as store:
    frame = store.get_by_name("numbers")
    assert list(frame.columns) == ["a", "b"] and int(frame["b"].sum()) == 10, frame
print("pyarrow.vendored.version" in sys.modules)
"""


def test_names_of_columns_cost_no_look_of_pyarrow_at_pandas(module_daemon: Any) -> None:
    """It takes longer than all else of the first get in a process."""
    with entrepot.connect(module_daemon.address, scope="tests") as store:
        store.put(pd.DataFrame({"a": np.arange(5), "b": np.arange(5)}), name="numbers")
        command = [sys.executable, "-c", READER, module_daemon.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
