"""The values that each environment of the matrix stores: builders by name, each with the packages that it needs.

A builder runs only where its packages are installed in at least the given versions; where they are, it must succeed.
This module runs in every environment, so it imports nothing but the standard library at the top.
"""

from __future__ import annotations

import datetime as dt
import decimal
import importlib.util
import uuid
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

# Long enough for text of dtype object to be stored as Arrow text.
LONG = 70
MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)


@dataclass(frozen=True)
class Builder:
    """How a value is made.

    Attributes:
        build: makes it.
        needs: package -> the least version with which it can be made.
        module: a module of the folder ``own`` that it needs, which only one environment has; "": none.
    """

    build: Callable[[], Any]
    needs: dict[str, tuple[int, ...]]
    module: str


BUILDERS: dict[str, Builder] = {}


def define(name: str, *, module: str = "", **needs: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Decorator that adds a builder."""

    def add(build: Callable[[], Any]) -> Callable[[], Any]:
        BUILDERS[name] = Builder(build, {package: _numbers(least) for package, least in needs.items()}, module)
        return build

    return add


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())


def installed_version(package: str) -> str | None:
    """The version of a package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def buildable(builder: Builder) -> bool:
    """Whether this environment has what the builder needs."""
    if builder.module and importlib.util.find_spec(builder.module) is None:
        return False
    versions = {package: installed_version(package) for package in builder.needs}
    return all(version is not None and _numbers(version) >= builder.needs[name] for name, version in versions.items())


# Plain Python


@define("plain/nested")
def _nested() -> Any:
    return {
        "none": None,
        "flags": [True, False, 1, 0],
        "numbers": (2**70, -1.5, float("nan"), -0.0, 1 + 2j),
        "text": ["", "Ärger", "\N{GRINNING FACE}", "\ud800"],
        "bytes": [b"", b"\x00\xff", bytearray(b"abc")],
        "times": [dt.date(1, 1, 1), MOMENT, MOMENT.replace(tzinfo=dt.timezone.utc), dt.time(23, 59), dt.timedelta(-1)],
        "exact": [decimal.Decimal("1.10"), uuid.UUID(int=7)],
        "sets": [{1, 2}, frozenset({"a"})],
        ("tuple", 1): {3: "key"},
    }


@define("plain/zoned")
def _zoned() -> Any:
    zones = [zoneinfo.ZoneInfo("Europe/Berlin"), dt.timezone(dt.timedelta(hours=5, minutes=30))]
    return [MOMENT.replace(tzinfo=zone) for zone in zones]


@define("plain/memoryview")
def _view() -> Any:
    return memoryview(bytes(range(24))).cast("B").cast("i", (2, 3))


@define("plain/class of one environment", module="own_classes")
def _own() -> Any:
    module: Any = importlib.import_module("own_classes")
    return {"one": module.Own(1), "two": [module.Own("b")]}


# NumPy


@define("numpy/numbers", numpy="1.26")
def _numbers_of_all_kinds() -> Any:
    import numpy as np

    return {code: np.arange(6, dtype=code).reshape(2, 3) for code in "bBhHiIlLqQefdgFDG"}


@define("numpy/large", numpy="1.26")
def _large() -> Any:
    import numpy as np

    return np.asfortranarray(np.arange(6000, dtype=">i4").reshape(60, 100))


@define("numpy/structured", numpy="1.26")
def _structured() -> Any:
    import numpy as np

    dtype = np.dtype([("id", "<i4"), ("where", [("x", "<f8"), ("y", "<f8", (2,))]), ("name", "<U5")], align=True)
    return np.array([(1, (0.5, (1, 2)), "ab"), (2, (1.5, (3, 4)), "cde")], dtype=dtype)


@define("numpy/times", numpy="1.26")
def _times() -> Any:
    import numpy as np

    units = ("Y", "D", "s", "ms", "us", "ns", "25s")
    return [np.array(["2024-02-29", "NaT"], dtype="M8[D]").astype(f"M8[{unit}]") for unit in units] + [
        np.array([5, -1], dtype="m8[h]")
    ]


@define("numpy/text and bytes", numpy="1.26")
def _fixed_text() -> Any:
    import numpy as np

    return [np.array(["ä", "bcd"]), np.array([b"a", b"bcd"]), np.array([b"ab"], dtype="V2")]


@define("numpy/objects", numpy="1.26")
def _objects() -> Any:
    import numpy as np

    return np.array([1, "two", None, (3, 4)], dtype=object)


@define("numpy/scalars", numpy="1.26")
def _scalars() -> Any:
    import numpy as np

    return [np.float32(1.5), np.int64(-3), np.bool_(True), np.str_("x"), np.bytes_(b"y"), np.datetime64(MOMENT, "us")]


@define("numpy/masked", numpy="1.26")
def _masked() -> Any:
    import numpy as np

    return np.ma.MaskedArray([1.0, 2.0, 3.0], mask=[False, True, False], fill_value=-1.0)


@define("numpy/record and matrix", numpy="1.26")
def _subclasses() -> Any:
    import numpy as np

    names: Any = "n,s"
    return [np.rec.fromarrays([np.array([1, 2]), np.array(["a", "b"])], names=names), np.matrix([[1, 2], [3, 4]])]


@define("numpy/StringDType", numpy="2.0")
def _string_dtype() -> Any:
    import numpy as np

    return np.array(["a", "longer than the small text that fits inside", ""], dtype=np.dtypes.StringDType())


@define("numpy/StringDType with NA", numpy="2.0")
def _string_dtype_na() -> Any:
    import numpy as np

    return np.array(["a", None], dtype=np.dtypes.StringDType(na_object=None))


@define("numpy/generator", numpy="1.26")
def _generator() -> Any:
    import numpy as np

    return np.random.default_rng(7)


@define("numpy/old random state", numpy="1.26")
def _random_state() -> Any:
    import numpy as np

    return np.random.RandomState(7)


# Arrow


def _arrow(name: str, least: str = "17.0", module: str = "") -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    return define(f"arrow/{name}", module=module, pyarrow=least)


@define("arrow/flat", pyarrow="17.0", numpy="1.26")
def _flat() -> Any:
    import numpy as np
    import pyarrow as pa

    kinds = [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.date32(), pa.date64(), pa.time32("ms")]
    kinds += [pa.time64("ns"), pa.timestamp("s"), pa.timestamp("us", "Europe/Berlin"), pa.duration("ns"), pa.null()]
    kinds += [pa.binary(), pa.binary(3), pa.large_string(), pa.string(), pa.month_day_nano_interval()]
    samples: dict[str, Any] = {
        "halffloat": np.float16(1.5),
        "bool": True,
        "date32[day]": dt.date(2024, 2, 29),
        "binary": b"ab",
    }
    samples |= {
        "date64[ms]": dt.date(2024, 2, 29),
        "fixed_size_binary[3]": b"abc",
        "month_day_nano_interval": (1, 2, 3),
    }
    samples |= {"large_string": "ä", "string": "b", "double": 0.1, "null": None}
    columns = {}
    for number, kind in enumerate(kinds):
        sample = samples.get(str(kind), 5)
        columns[f"{number}"] = pa.array([sample, None, sample], type=kind)
    return pa.table(columns).replace_schema_metadata({"of": "the matrix"})


@_arrow("decimal128 and decimal256")
def _decimals() -> Any:
    import pyarrow as pa

    values = [decimal.Decimal("1.10"), None]
    return pa.table({"128": pa.array(values, pa.decimal128(9, 2)), "256": pa.array(values, pa.decimal256(50, 2))})


@_arrow("decimal32", "19.0")
def _decimal32() -> Any:
    import pyarrow as pa

    return pa.table({"d": pa.array([decimal.Decimal("1.10"), None], pa.decimal32(5, 2))})


@_arrow("decimal64", "19.0")
def _decimal64() -> Any:
    import pyarrow as pa

    return pa.array([decimal.Decimal("1.10"), None], pa.decimal64(12, 2))


@_arrow("type decimal64", "19.0")
def _decimal64_type() -> Any:
    import pyarrow as pa

    return pa.struct([("a", pa.list_(pa.decimal64(12, 2)))])


@_arrow("views")
def _views() -> Any:
    import pyarrow as pa

    text = ["short", None, "longer than the twelve bytes of a view"]
    return pa.table({"s": pa.array(text, pa.string_view()), "b": pa.array([b"x", None, b"y" * 20], pa.binary_view())})


@_arrow("lists")
def _lists() -> Any:
    import pyarrow as pa

    rows = [[1, 2], None, []]
    columns = {str(number): pa.array(rows, kind(pa.int16())) for number, kind in enumerate((pa.list_, pa.large_list))}
    return pa.table({**columns, "fixed": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2))})


@_arrow("list views")
def _list_views() -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "v": pa.array([[1, 2], None, []], pa.list_view(pa.int16())),
            "l": pa.array([[1, 2], None, []], pa.large_list_view(pa.int16())),
        }
    )


@_arrow("nested")
def _nested_arrow() -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "struct": pa.array([{"a": 1, "b": ["x"]}, None]),
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        }
    )


@_arrow("dictionary")
def _dictionary() -> Any:
    import pyarrow as pa

    kind = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    return pa.chunked_array([pa.array(["a", "b", "a"]).cast(kind), pa.array(["c", None, "a"]).cast(kind)])


@_arrow("run-end encoded")
def _run_end() -> Any:
    import pyarrow as pa

    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["a", "b"]))


@_arrow("unions")
def _unions() -> Any:
    import pyarrow as pa

    kinds, numbers, text = pa.array([0, 1, 0], pa.int8()), pa.array([1, 2, 3]), pa.array(["a", "b", "c"])
    dense = pa.UnionArray.from_dense(kinds, pa.array([0, 0, 1], pa.int32()), [numbers, text])
    return [pa.UnionArray.from_sparse(kinds, [numbers, text]), dense]


@_arrow("fixed-shape tensor")
def _tensor() -> Any:
    import pyarrow as pa

    storage = pa.array([[1, 2, 3, 4]], pa.list_(pa.int32(), 4))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), (2, 2)), storage)


@_arrow("uuid", "18.0")
def _uuid() -> Any:
    import pyarrow as pa

    return pa.table({"u": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\x01" * 16], pa.binary(16)))})


@_arrow("json", "19.0")
def _json() -> Any:
    import pyarrow as pa

    return pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None]))


@_arrow("bool8", "18.0")
def _bool8() -> Any:
    import pyarrow as pa

    return pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))


@_arrow("opaque", "18.0")
def _opaque() -> Any:
    import pyarrow as pa

    return pa.ExtensionArray.from_storage(pa.opaque(pa.int8(), "kind", "vendor"), pa.array([1], pa.int8()))


@_arrow("own extension type", module="own_arrow_types")
def _own_extension() -> Any:
    import pyarrow as pa

    module: Any = importlib.import_module("own_arrow_types")
    return pa.ExtensionArray.from_storage(module.register(), pa.array([1, 2], pa.int64()))


@_arrow("scalars")
def _arrow_scalars() -> Any:
    import pyarrow as pa

    return [pa.scalar(1, pa.int8()), pa.scalar("x"), pa.scalar(MOMENT, pa.timestamp("us")), pa.scalar([1, 2])]


@_arrow("schema and buffer")
def _schema() -> Any:
    import pyarrow as pa

    field = pa.field("a", pa.int8(), nullable=False, metadata={"unit": "m"})
    return [pa.schema([field]), field, field.type, pa.py_buffer(b"bytes")]
