"""A neutral description of a value, as JSON: the same for equal values, whatever versions of the packages are in use.

The descriptions are what the environments of the matrix compare, so they name types, units, zones, missing values and
labels, and list every element. They use public functions only, and none of Entrepot's.
"""

from __future__ import annotations

import datetime as dt
from typing import Any


def describe(value: Any) -> Any:
    """The description of a value. A type that is not known here is an ``AssertionError``, never a guess."""
    if value is None or (isinstance(value, (bool, str)) and type(value) in (bool, str)):
        return [type(value).__name__, ascii(value)]
    packages = (base.__module__.partition(".")[0] for base in type(value).__mro__)
    describer = next((_BY_PACKAGE[package] for package in packages if package in _BY_PACKAGE), _plain)
    return describer(value)


def _plain(value: Any) -> Any:
    kind = type(value).__name__
    if isinstance(value, dict):
        return [kind, [[describe(key), describe(item)] for key, item in value.items()]]
    if isinstance(value, (list, tuple)):
        return [kind, [describe(item) for item in value]]
    if isinstance(value, (set, frozenset)):
        return [kind, sorted(map(describe, value), key=repr)]
    if isinstance(value, memoryview):
        return [kind, value.format, list(value.shape or ()), value.tolist()]
    if isinstance(value, (dt.datetime, dt.time)):
        return [kind, value.isoformat(), value.fold, _zone(value.tzinfo)]
    if type(value).__module__ == "own_classes":
        return [kind, describe(value.content)]
    assert type(value).__module__ in ("builtins", "datetime", "decimal", "uuid"), f"describe() does not know {kind}"
    return [kind, ascii(value)]


def _zone(zone: Any) -> Any:
    return None if zone is None else [type(zone).__module__.partition(".")[0], str(zone)]


def _numpy(value: Any) -> Any:
    import numpy as np

    kind = type(value).__name__
    if isinstance(value, np.ma.MaskedArray):
        fill = np.asarray(value.fill_value)
        return [kind, describe(np.ma.getdata(value)), describe(np.ma.getmaskarray(value)), describe(fill)]
    if isinstance(value, np.ndarray):
        return [kind, _numpy_dtype(value.dtype), list(value.shape), describe(value.tolist())]
    if isinstance(value, np.dtype):
        return ["dtype", _numpy_dtype(value)]
    if isinstance(value, np.generic):
        item = value.item()  # a long double stays one
        shown = str(value) if isinstance(item, np.generic) else describe(item)
        return ["scalar", kind.rstrip("_"), _numpy_dtype(value.dtype), shown]
    if isinstance(value, np.random.Generator):
        return [kind, describe(value.bit_generator.state)]
    if isinstance(value, np.random.RandomState):
        return [kind, [describe(part) for part in value.get_state(legacy=True)]]
    raise AssertionError(f"describe() does not know {kind}")


def _numpy_dtype(dtype: Any) -> Any:
    if dtype.char == "T":
        return ["StringDType", repr(getattr(dtype, "na_object", "none"))]
    return [ascii(dtype.descr) if dtype.names else dtype.str, dtype.char, dtype.itemsize, bool(dtype.isalignedstruct)]


def _arrow(value: Any) -> Any:
    import pyarrow as pa

    kind = type(value).__name__
    if isinstance(value, pa.Table):
        columns = [describe(column) for column in value.columns]
        return [kind, describe(value.schema), columns]
    if isinstance(value, pa.ChunkedArray):
        return [kind, describe(value.type), [_elements(chunk) for chunk in value.chunks]]
    if isinstance(value, pa.Array):
        return [kind, describe(value.type), _elements(value)]
    if isinstance(value, pa.Scalar):
        return [kind, describe(value.type), describe(value.as_py())]
    if isinstance(value, pa.Schema):
        return [kind, [describe(field) for field in value], describe(value.metadata or None)]
    if isinstance(value, pa.Field):
        return [kind, value.name, describe(value.type), value.nullable, describe(value.metadata or None)]
    if isinstance(value, pa.DataType):
        storage = describe(value.storage_type) if isinstance(value, pa.BaseExtensionType) else None
        return ["type", str(value), storage]
    if isinstance(value, pa.Buffer):
        return ["Buffer", value.to_pybytes().hex()]
    return ["Arrow's", kind, ascii(value)]  # a month_day_nano interval and the like


def _elements(array: Any) -> Any:
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        return _elements(array.storage)
    if pa.types.is_dictionary(array.type):
        return [_elements(array.indices), _elements(array.dictionary)]
    if pa.types.is_run_end_encoded(array.type):
        return [_elements(array.run_ends), _elements(array.values)]
    array.validate(full=True)
    if pa.types.is_float16(array.type):
        array = array.view(pa.int16())
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type) or pa.types.is_time(array.type):
        width = array.type.bit_width
        array = array.view(pa.int64() if width == 64 else pa.int32())  # whatever can be shown by Python's own types
    return describe(array.to_pylist())


def _pandas(value: Any) -> Any:
    import pandas as pd

    kind = type(value).__name__
    if isinstance(value, pd.DataFrame):
        columns = [_pandas_values(value.iloc[:, number]) for number in range(value.shape[1])]
        return [kind, describe(value.columns), describe(value.index), columns, describe(value.attrs)]
    if isinstance(value, pd.Series):
        return [kind, describe(value.name), describe(value.index), _pandas_values(value)]
    if isinstance(value, pd.RangeIndex):
        return [kind, describe(value.name), value.start, value.stop, value.step]
    if isinstance(value, pd.MultiIndex):
        codes = [[int(code) for code in level] for level in value.codes]
        return [kind, [describe(level) for level in value.levels], codes, describe(list(value.names))]
    if isinstance(value, pd.Index):
        freq: Any = getattr(value, "freq", None)
        return [kind, describe(value.name), None if freq is None else freq.freqstr, _pandas_values(value)]
    if isinstance(value, pd.api.extensions.ExtensionDtype):
        return ["dtype", _pandas_dtype(value)]
    if value is pd.NaT or value is pd.NA:
        return ["missing", kind]
    if isinstance(value, pd.Timestamp):
        return [kind, value.isoformat(), value.unit, _zone(value.tzinfo)]
    if isinstance(value, pd.Timedelta):
        return [kind, str(value), value.unit]
    if isinstance(value, pd.Period):
        return [kind, str(value), value.freqstr]
    if isinstance(value, pd.Interval):
        return [kind, describe(value.left), describe(value.right), value.closed]
    if isinstance(value, pd.offsets.BaseOffset):
        return ["offset", value.freqstr, value.n]
    raise AssertionError(f"describe() does not know {kind}")


def _pandas_values(values: Any) -> Any:
    import numpy as np
    import pandas as pd

    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        array = values.array
        return [_pandas_dtype(dtype), [int(code) for code in array.codes]]
    if isinstance(dtype, pd.ArrowDtype):
        return [_pandas_dtype(dtype), _elements(values.array.__arrow_array__().combine_chunks())]
    if isinstance(dtype, (pd.DatetimeTZDtype, pd.PeriodDtype)):
        return [_pandas_dtype(dtype), [int(item) for item in values.array.asi8]]
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        return [_pandas_dtype(dtype), [int(item) for item in values.to_numpy().view("i8")]]
    return [_pandas_dtype(dtype), [describe(item) for item in values.array]]


def _pandas_dtype(dtype: Any) -> Any:
    import numpy as np
    import pandas as pd

    if isinstance(dtype, pd.StringDtype):  # what pandas 2.2 calls string[pyarrow_numpy] is the later str
        # pandas 2.2 has no attribute for the missing value
        storage: str = dtype.storage
        missing = "nan" if storage == "pyarrow_numpy" or getattr(dtype, "na_value", pd.NA) is not pd.NA else "NA"
        return ["text", storage.partition("_")[0], missing]
    if isinstance(dtype, pd.CategoricalDtype):
        return ["category", bool(dtype.ordered), None if dtype.categories is None else describe(dtype.categories)]
    if isinstance(dtype, pd.DatetimeTZDtype):
        return ["zoned", dtype.unit, _zone(dtype.tz)]
    if isinstance(dtype, pd.ArrowDtype):
        return ["arrow", describe(dtype.pyarrow_dtype)]
    return _numpy_dtype(dtype) if isinstance(dtype, np.dtype) else ["pandas", str(dtype)]


def _polars(value: Any) -> Any:
    import polars as pl

    kind = type(value).__name__
    if isinstance(value, pl.LazyFrame):
        return [kind, describe(value.collect())]
    if isinstance(value, pl.DataFrame):
        return [kind, [describe(column) for column in value.get_columns()]]
    assert isinstance(value, pl.Series), f"describe() does not know {kind}"
    # Polars 1 also names the order of categories, which is always that of the text in Polars 2.
    dtype = "Categorical" if isinstance(value.dtype, pl.Categorical) else str(value.dtype)
    return [kind, value.name, dtype, describe(value.to_list())]


_BY_PACKAGE = {"numpy": _numpy, "pandas": _pandas, "pyarrow": _arrow, "polars": _polars}
