"""Generated pandas objects come back the same: dtypes, kinds of indexes, nulls, names, slices."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pandas_equality import assert_same

PROPERTY = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
VERSION = tuple(int(part) for part in pd.__version__.split(".")[:2])
MAX_ROWS = 9
NUMPY = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16"]
TIMES = ["M8[s]", "M8[ms]", "M8[us]", "M8[ns]", "m8[s]", "m8[ms]", "m8[us]", "m8[ns]"]
TEXT_DTYPES: list[Any] = ["string[python]", "string[pyarrow]"]
if VERSION >= (2, 3):
    TEXT_DTYPES += [pd.StringDtype(storage, na_value=np.nan) for storage in ("python", "pyarrow")]
MASKED: dict[str, st.SearchStrategy[Any]] = {
    "Int8": st.integers(-128, 127),
    "Int64": st.integers(-(2**63), 2**63 - 1),
    "UInt16": st.integers(0, 2**16 - 1),
    "UInt64": st.integers(0, 2**64 - 1),
    "Float32": st.floats(width=32, allow_nan=False),
    "Float64": st.floats(allow_nan=False),
    "boolean": st.booleans(),
}
ARROW: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.large_string(), st.text(st.characters(codec="utf-8"), max_size=20)),
    (pa.date32(), st.dates()),
    (pa.decimal128(20, 3), st.decimals(-1000, 1000, places=3)),
]
NESTED: list[tuple[Any, st.SearchStrategy[Any]]] = [  # not in an index: pandas has to compare what is in one
    (pa.list_(pa.int8()), st.lists(st.integers(-128, 127), max_size=3)),
    (pa.struct([("a", pa.bool_()), ("b", pa.string())]), st.fixed_dictionaries({"a": st.booleans(), "b": st.none()})),
]
utf8 = st.text(st.characters(codec="utf-8"), max_size=20)
ABSENT = [None, np.nan, pd.NA]  # NA only beside text: in other columns of objects it needs pickle
objects = (
    st.sampled_from(ABSENT[:2])
    | utf8
    | st.text(st.characters(categories=["Cs"]), max_size=3)
    | st.integers()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.binary(max_size=5)
    | st.dates()
    | st.just(Decimal("1.50"))
    | st.tuples(st.integers(), utf8)
)
instants = st.integers(-(2**33), 2**33)  # seconds since 1970: until 2242, so that nanoseconds fit


def lists(elements: st.SearchStrategy[Any], rows: int) -> st.SearchStrategy[list[Any]]:
    """Lists of exactly so many elements."""
    return st.lists(elements, min_size=rows, max_size=rows)


@st.composite
def zoned(draw: Any, rows: int) -> Any:
    zone = draw(st.sampled_from(["UTC", "Europe/Berlin", dt.timezone.utc, dt.timezone(dt.timedelta(hours=-5))]))
    values = np.array(draw(lists(instants | st.just("NaT"), rows)), dtype="M8[s]")
    return pd.DatetimeIndex(values, tz="UTC").tz_convert(zone).as_unit(draw(st.sampled_from(["s", "ns"]))).array


@st.composite
def periods(draw: Any, rows: int) -> Any:
    kind = pd.PeriodDtype(draw(st.sampled_from(["D", "M", "2h", "W-TUE", "Y"])))
    ordinals = draw(lists(st.integers(-1000, 1000), rows))
    cls: Any = pd.PeriodIndex  # pandas' stubs lack from_ordinals
    return cls.from_ordinals(ordinals, freq=kind.freq).array


@st.composite
def intervals(draw: Any, rows: int) -> Any:
    edge = draw(st.sampled_from([st.integers(-100, 100), st.floats(-100, 100)]))
    pairs = [sorted(pair) for pair in draw(lists(st.tuples(edge, edge), rows))]
    closed = draw(st.sampled_from(["left", "right", "both", "neither"]))
    left, right = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    kind = np.array([*left, 0]).dtype
    return pd.arrays.IntervalArray.from_arrays(np.array(left, kind), np.array(right, kind), closed=closed)


@st.composite
def categories(draw: Any, rows: int) -> Any:
    numbers, times = st.integers(-100, 100) | st.floats(-9, 9), instants.map(lambda second: np.datetime64(second, "s"))
    names = draw(st.lists(draw(st.sampled_from([utf8, numbers, times])), unique=True, max_size=4))
    codes = draw(lists(st.integers(-1, len(names) - 1), rows))
    return pd.Categorical.from_codes(codes, pd.Index(names), ordered=draw(st.booleans()))


@st.composite
def columns(draw: Any, rows: int, *, nested: bool = True) -> Any:
    """Values of one column: a NumPy array or an array of pandas'."""

    def masked() -> Any:
        name = draw(st.sampled_from(sorted(MASKED)))
        return pd.array(draw(lists(st.none() | MASKED[name], rows)), dtype=name)

    def arrow() -> Any:
        kind, elements = draw(st.sampled_from(ARROW + NESTED if nested else ARROW))
        array = pa.array(draw(lists(st.none() | elements, rows)), kind)
        return pd.Series(array, dtype=pd.ArrowDtype(kind)).array

    def text() -> Any:
        return pd.array(draw(lists(st.none() | utf8, rows)), dtype=draw(st.sampled_from(TEXT_DTYPES)))

    def numpy_objects() -> Any:
        array = np.empty(rows, object)
        array[:] = draw(
            lists(draw(st.sampled_from([objects, utf8, *(utf8 | st.just(absent) for absent in ABSENT)])), rows)
        )
        return array

    makers: dict[str, Callable[[], Any]] = {
        "numpy": lambda: draw(hnp.arrays(draw(st.sampled_from(NUMPY)), rows)),
        "times": lambda: draw(hnp.arrays("i8", rows, elements=instants)).astype(draw(st.sampled_from(TIMES))),
        "masked": masked,
        "arrow": arrow,
        "text": text,
        "objects": numpy_objects,
        "zoned": lambda: draw(zoned(rows)),
        "periods": lambda: draw(periods(rows)),
        "intervals": lambda: draw(intervals(rows)),
        "categories": lambda: draw(categories(rows)),
    }
    return makers[draw(st.sampled_from(list(makers)))]()


names = st.none() | utf8 | st.integers(-9, 9) | st.tuples(utf8, st.integers(0, 9)) | st.dates() | st.just(2.5)


@st.composite
def indexes(draw: Any, rows: int) -> Any:
    kind = draw(st.sampled_from(["range", "column", "levels", "dates"]))
    if kind == "range":
        start, step = draw(st.integers(-99, 99)), draw(st.integers(1, 9) | st.integers(-9, -1))
        return pd.RangeIndex(start, start + rows * step, step, name=draw(names))
    if kind == "dates":
        frequency = draw(st.sampled_from(["D", "h", "B", "2ME", "W-MON", "15min"]))
        return pd.date_range(draw(st.dates(dt.date(1990, 1, 1), dt.date(2100, 1, 1))), periods=rows, freq=frequency)
    if kind == "levels":
        arrays = [draw(columns(rows, nested=False)) for _ in range(draw(st.integers(1, 3)))]
        return pd.MultiIndex.from_arrays(arrays, names=[draw(names) for _ in arrays])
    values = draw(columns(rows, nested=False))
    is_object = isinstance(values, np.ndarray) and values.dtype == object
    return pd.Index(values, dtype=object if is_object else None, tupleize_cols=False, name=draw(names))


@st.composite
def frames(draw: Any) -> Any:
    rows, width = draw(st.integers(0, MAX_ROWS)), draw(st.integers(0, 4))
    data = {number: draw(columns(rows)) for number in range(width)}
    frame = pd.DataFrame({name: as_series(values) for name, values in data.items()}, index=pd.RangeIndex(rows))
    frame.index = draw(indexes(rows))
    frame.columns = draw(indexes(width))
    if draw(st.booleans()):
        frame = frame.copy()  # consolidated
    return frame


def as_series(values: Any) -> Any:
    """A Series without pandas' inference for objects."""
    is_object = isinstance(values, np.ndarray) and values.dtype == object
    return pd.Series(values, dtype=object if is_object else None)


def cut(draw: Any, size: int) -> slice:
    """A slice of so many elements, forwards or backwards."""
    start, stop = sorted((draw(st.integers(0, size)), draw(st.integers(0, size))))
    return slice(start, stop, draw(st.sampled_from([1, 2]))) if draw(st.booleans()) else slice(None, None, -1)


copy_modes = st.sampled_from(["never", "on_write", "always"])


@PROPERTY
@given(data=st.data(), frame=frames(), copy=copy_modes)
def test_any_frame_and_slice_comes_back(round_trip: Any, data: Any, frame: Any, copy: Any) -> None:
    assert_same(round_trip(frame, copy), frame)
    rows, width = frame.shape
    part = frame.iloc[cut(data.draw, rows), cut(data.draw, width)]
    assert_same(round_trip(part, copy), part)


@PROPERTY
@given(data=st.data(), rows=st.integers(0, MAX_ROWS), name=names, copy=copy_modes)
def test_any_series_index_and_array_comes_back(round_trip: Any, data: Any, rows: int, name: Any, copy: Any) -> None:
    value = as_series(data.draw(columns(rows))).rename(name)
    value.index = data.draw(indexes(rows))
    part = value.iloc[cut(data.draw, rows)]
    for item in (value, part, value.index, part.index):
        assert_same(round_trip(item, copy), item)
    if not isinstance(value.dtype, np.dtype):
        assert_same(round_trip(value.array, copy), value.array)
