"""pandas' part of the values of the matrix (see ``matrix_values``)."""

from __future__ import annotations

import datetime as dt
import decimal
import zoneinfo
from collections.abc import Callable
from typing import Any

from matrix_values import LONG, MOMENT, define


def _pandas(name: str, least: str = "2.2", **others: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    return define(f"pandas/{name}", pandas=least, **others)


@_pandas("numbers")
def _numbers() -> Any:
    import numpy as np
    import pandas as pd

    frame = pd.DataFrame({code: np.arange(4).astype(code) for code in ("i1", "u8", "f4", "f8", "c16", "?")})
    frame["another i1"] = np.arange(4, dtype="i1")
    frame.attrs = {"unit": "m", "steps": [1, 2]}
    return frame


@_pandas("times")
def _times() -> Any:
    import pandas as pd

    moments: Any = pd.Series([MOMENT, None])
    return pd.DataFrame({unit: moments.astype(f"datetime64[{unit}]") for unit in ("s", "ms", "us", "ns")})


@_pandas("zoned times")
def _zoned() -> Any:
    import pandas as pd

    zones: list[Any] = [dt.timezone.utc, dt.timezone(dt.timedelta(hours=2)), zoneinfo.ZoneInfo("Asia/Tokyo")]
    moments: Any = pd.Series([MOMENT, None])
    columns = {}
    for zone in zones:
        for unit in ("s", "us", "ns"):
            columns[f"{zone} {unit}"] = moments.astype(f"datetime64[{unit}]").dt.tz_localize(zone)
    return pd.DataFrame(columns)


@_pandas("zone by name")
def _zone_by_name() -> Any:  # pandas 2 makes a zone of pytz of it, pandas 3 one of zoneinfo
    import pandas as pd

    return pd.Series(pd.DatetimeIndex([MOMENT, None]).tz_localize("Europe/Berlin"))


@_pandas("durations")
def _durations() -> Any:
    import pandas as pd

    durations: Any = pd.Series([dt.timedelta(days=-1, seconds=3), None])
    return pd.DataFrame({unit: durations.astype(f"timedelta64[{unit}]") for unit in ("s", "ms", "us", "ns")})


@_pandas("inferred times")
def _inferred() -> Any:  # nanoseconds in pandas 2, microseconds in pandas 3
    import pandas as pd

    return pd.DataFrame({"t": pd.to_datetime(["2024-02-29", "2024-03-01"]), "d": pd.to_timedelta([1, 2], unit="D")})


@_pandas("periods and intervals")
def _periods() -> Any:
    import pandas as pd

    return pd.DataFrame(
        {
            "month": pd.period_range("2024-01", periods=3, freq="M"),
            "quarter": pd.period_range("2024Q1", periods=3, freq="Q-JAN"),
            "interval": pd.arrays.IntervalArray.from_breaks([0.0, 1.5, 3.0, 4.5], closed="left"),
        }
    )


@_pandas("nullable")
def _nullable() -> Any:
    import pandas as pd

    kinds: tuple[Any, ...] = ("Int8", "UInt64", "Float32", "Float64")
    columns: dict[str, Any] = {kind: pd.array([1, None, 3], dtype=kind) for kind in kinds}
    return pd.DataFrame({**columns, "boolean": pd.array([True, None, False], dtype="boolean")})


@_pandas("categories")
def _categories() -> Any:
    import pandas as pd

    return pd.DataFrame(
        {
            "ordered": pd.Categorical([2, 1, None], categories=[3, 2, 1], ordered=True),
            "of objects": pd.Categorical(["a", None, "a"], categories=pd.Index(["a", "unused"], dtype=object)),
            "of times": pd.Categorical([MOMENT, MOMENT, None]),
        }
    )


@_pandas("categories of inferred text")
def _text_categories() -> Any:  # of dtype object in pandas 2, of dtype str in pandas 3
    import pandas as pd

    return pd.Series(["a", "b", None, "a"], dtype="category")


@_pandas("inferred text")
def _inferred_text() -> Any:  # of dtype object in pandas 2, of dtype str in pandas 3
    import pandas as pd

    return pd.DataFrame({"short": ["a", None, "ä"], "other": ["x", "y", "z"]}, index=["p", "q", "r"])


@_pandas("objects of text")
def _object_text() -> Any:
    import pandas as pd

    return pd.DataFrame({"s": pd.Series(["a", None] * (LONG // 2), dtype=object)})


@_pandas("objects of short text")
def _short_object_text() -> Any:
    import pandas as pd

    return pd.DataFrame(
        {"s": pd.Series(["a", None, "b"], dtype=object), "n": pd.Series(["a", pd.NA, "b"], dtype=object)}
    )


@_pandas("objects")
def _objects() -> Any:
    import pandas as pd

    return pd.DataFrame({"o": pd.Series([1, "two", None, [3], decimal.Decimal("1.10")], dtype=object)})


@_pandas("objects of pandas")
def _objects_of_pandas() -> Any:
    import pandas as pd

    items = [pd.Timestamp(MOMENT), pd.Timedelta("1D"), pd.Period("2024-01", "M"), pd.NaT, pd.NA, pd.Interval(0, 1)]
    return pd.Series(items, dtype=object)


@_pandas("string over Python")
def _string_python() -> Any:
    import pandas as pd

    return pd.DataFrame({"s": pd.array(["a", None, "ä"], dtype=pd.StringDtype("python"))})


@_pandas("string over Arrow", pyarrow="17.0")
def _string_arrow() -> Any:
    import pandas as pd

    return pd.DataFrame({"s": pd.array(["a", None, "ä"], dtype=pd.StringDtype("pyarrow"))})


@_pandas("str over Python", "2.3")
def _str_python() -> Any:
    import numpy as np
    import pandas as pd

    return pd.DataFrame({"s": pd.array(["a", None, "ä"], dtype=pd.StringDtype("python", na_value=np.nan))})


@_pandas("str over Arrow", pyarrow="17.0")
def _str_arrow() -> Any:
    import pandas as pd

    return pd.DataFrame({"s": pd.array(["a", None, "ä"], dtype=_str_dtype_over_arrow())})


@_pandas("str over Arrow, long", pyarrow="17.0")
def _long_str_arrow() -> Any:
    import pandas as pd

    return pd.Series(pd.array(["a", None] * (LONG // 2), dtype=_str_dtype_over_arrow()))


def _str_dtype_over_arrow() -> Any:
    import numpy as np
    import pandas as pd

    kind: Any = pd.StringDtype
    try:
        return kind("pyarrow", na_value=np.nan)
    except TypeError:  # pandas 2.2
        return kind("pyarrow_numpy")


@_pandas("columns over Arrow", pyarrow="17.0")
def _over_arrow() -> Any:
    import pandas as pd
    import pyarrow as pa

    over: Any = pd.ArrowDtype
    return pd.DataFrame(
        {
            "i": pd.array([1, None], dtype=over(pa.int32())),
            "l": pd.array([[1], None], dtype=over(pa.list_(pa.int8()))),
            "t": pd.array([MOMENT, None], dtype=over(pa.timestamp("us", "UTC"))),
            "v": pd.array(["a", None], dtype=over(pa.string_view())),
        }
    )


@_pandas("decimal32 over Arrow", pyarrow="19.0")
def _decimal_over_arrow() -> Any:
    import pandas as pd
    import pyarrow as pa

    return pd.Series([decimal.Decimal("1.10"), None], dtype=pd.ArrowDtype(pa.decimal32(5, 2)))


@_pandas("indexes")
def _indexes() -> Any:
    import pandas as pd

    dates = pd.DatetimeIndex(["2024-01-31", "2024-02-29"], dtype="datetime64[ns]", freq="ME", name="end")
    return [
        pd.RangeIndex(1, 9, 2, name="r"),
        dates,
        pd.date_range("2024-01-01", periods=3, freq="h", unit="s"),
        pd.timedelta_range("1D", periods=2, freq="D").as_unit("ns"),
        pd.IntervalIndex.from_breaks([0, 1, 2]),
        pd.PeriodIndex(["2024-01"], freq="M"),
        pd.CategoricalIndex([1, 2, 1]),
        pd.Index([1.5, 2.5]),
    ]


@_pandas("several levels")
def _several_levels() -> Any:
    import pandas as pd

    levels: list[Any] = [
        pd.Index(["a", "b"], dtype=object),
        pd.DatetimeIndex(["2024-01-01", "2024-01-02"]).as_unit("ns"),
    ]
    index = pd.MultiIndex(levels=levels, codes=[[0, 0, 1], [0, 1, -1]], names=["k", "t"])
    columns = pd.MultiIndex.from_arrays([pd.Index([1, 1, 2]), pd.Index(["x", "y", "x"], dtype=object)])
    return pd.DataFrame([[1, 2, 3], [4, 5, 6], [7, 8, 9]], index=index, columns=columns)


@_pandas("duplicate labels")
def _duplicate_labels() -> Any:
    import pandas as pd

    return pd.DataFrame([[1, 2.5, True]], columns=pd.Index(["a", "a", None], dtype=object))


@_pandas("sparse")
def _sparse() -> Any:
    import pandas as pd

    return pd.DataFrame({"s": pd.arrays.SparseArray([0, 0, 1, 2], fill_value=0)})


@_pandas("offsets and scalars")
def _offsets() -> Any:
    import pandas as pd

    offsets = [pd.offsets.MonthEnd(2), pd.offsets.BusinessDay(), pd.offsets.Day(3), pd.offsets.Hour(4)]
    scalars = [pd.Timestamp(MOMENT, tz="UTC"), pd.Timedelta("1D"), pd.Period("2024Q1", "Q"), pd.Interval(0, 1), pd.NA]
    return {"offsets": offsets, "scalars": scalars, "none": pd.NaT}


@_pandas("dtypes")
def _dtypes() -> Any:
    import pandas as pd

    return [pd.CategoricalDtype([1, 2], ordered=True), pd.Int64Dtype(), pd.DatetimeTZDtype("s", "UTC")]


@_pandas("dtype of text")
def _text_dtype() -> Any:
    import pandas as pd

    return pd.StringDtype("python")


@_pandas("dtype str", "2.3")
def _str_dtype() -> Any:
    import numpy as np
    import pandas as pd

    return pd.StringDtype("python", na_value=np.nan)


@_pandas("in plain data")
def _in_plain_data() -> Any:
    import numpy as np
    import pandas as pd

    return {"frame": pd.DataFrame({"a": np.arange(1000)}), "list": [pd.Series([1.5, 2.5], name="s")]}


@_pandas("in a pickle")
def _in_a_pickle() -> Any:  # a class of its own keeps the whole from being plain data
    import pandas as pd

    return [pd.Timestamp(MOMENT), pd.DataFrame({"a": pd.array([1, 2], dtype="int64"), "b": pd.array([1, 2], "Int64")})]
