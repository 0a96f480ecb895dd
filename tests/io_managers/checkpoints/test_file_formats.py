"""Checkpoints as files of other formats than Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entrepot_checkpoints.manifests import manifest_codec

pytest.importorskip("h5py")
orc = pytest.importorskip("pyarrow.orc")

VALUES: dict[str, Callable[[], Any]] = {
    "arrow": lambda: pa.table({"n": [1, 2, 3], "x": [0.5, 1.5, -2.5], "s": ["u", "v", "w"]}),
    "pandas": lambda: pd.DataFrame({"n": [1, 2, 3], "s": ["x", "y", "z"]}),
    "polars": lambda: pl.DataFrame({"n": [1, 2, 3], "x": [0.25, 0.5, 0.75]}),
    "array": lambda: np.arange(24, dtype=np.float32).reshape(2, 3, 4),
}
_OF_TABLES = ("arrow", "csv", "orc", "h5")
FORMATS: dict[str, tuple[str, ...]] = {"arrow": _OF_TABLES, "pandas": _OF_TABLES, "polars": _OF_TABLES}
FORMATS["array"] = ("npy", "h5")


def _equal(first: Any, second: Any) -> bool:
    return bool(np.array_equal(first, second)) if isinstance(second, np.ndarray) else bool(first.equals(second))


@pytest.mark.parametrize(("kind", "file_format"), [(kind, each) for kind in FORMATS for each in FORMATS[kind]])
def test_a_value_comes_back(
    store: entrepot.Store, other: entrepot.Store, folder: Any, kind: str, file_format: Any
) -> None:
    value = VALUES[kind]()
    oid = store.put(value, name="value")
    assert store.save(oid, folder("v"), format=file_format).committed
    (file,) = Path(folder("v")).glob(f"*.{file_format}")
    assert file.name.startswith("value-")
    assert not store.save(oid, folder("v"), format=file_format).committed
    assert other.load(folder("v")) == oid
    back = other.get_by_name("value")
    assert type(back) is type(value)
    assert _equal(back, value)
    assert other.load(folder("v")) == oid  # equal content is left as it is


def test_other_programs_read_the_files(store: entrepot.Store, folder: Any) -> None:
    store.save(store.put(VALUES["arrow"]()), folder("t"), format="orc")
    (file,) = Path(folder("t")).glob("*.orc")
    assert orc.read_table(file).equals(VALUES["arrow"]())


def test_a_collection_becomes_files_of_the_format(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    parts = store.collection("parts")
    for index in range(3):
        parts.put(pa.table({"n": [index]}), index=index)
    sealed = parts.seal(3)
    store.save(sealed, folder("c"), format="orc")
    assert len(list(Path(folder("c"), "data").glob("*.orc"))) == 3
    other.load(folder("c"))
    assert [part["n"][0].as_py() for part in other.get_by_name("parts")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "file_format", "message"),
    [
        (np.arange(3), "orc", r"only tables \(Arrow, pandas, Polars\) can be written as ORC"),
        (pa.table({"n": [1]}), "npy", r"only arrays \(NumPy\) can be written as NPY"),
        ({"a": 1}, "h5", r"tables \(Arrow, pandas, Polars\) and arrays \(NumPy\) can be written as HDF5"),
        (pa.table({"s": ["a", None]}), "csv", "would change when restored from CSV"),
        (pa.table({"s": ["01", "02"]}), "csv", "would change when restored from CSV"),
        (pa.table({"s": ["a", None]}), "h5", "missing values"),
        (pa.table({"s": pa.array(["a"], pa.large_string())}), "orc", "would change when restored from ORC"),
        (pd.DataFrame({"n": [1, 2]}, index=range(5, 7)), "orc", "lose its index"),
    ],
)
def test_what_would_not_come_back_is_refused(
    store: entrepot.Store, folder: Any, value: Any, file_format: Any, message: str
) -> None:
    oid = store.put(value, name="value")
    with pytest.raises(entrepot.UnsupportedType, match=message):
        store.save(oid, folder("v"), format=file_format)
    assert not Path(folder("v")).exists() or not list(Path(folder("v")).iterdir())


def test_an_unknown_format_is_named(store: entrepot.Store, folder: Any) -> None:
    oid = store.put(1)
    with pytest.raises(entrepot.InvalidArgument, match=r"'entrepot', 'parquet', 'arrow'.* but got 'xlsx'"):
        store.save(oid, folder("v"), format="xlsx")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_only_the_new_formats_need_a_new_version(store: entrepot.Store, folder: Any) -> None:
    oid = store.put(VALUES["arrow"]())
    for file_format, version in (("entrepot", 2), ("parquet", 2), ("orc", 3)):
        store.save(oid, folder(file_format), format=file_format)  # type: ignore[arg-type]
        first = Path(folder(file_format), manifest_codec.MANIFEST_NAME).read_text().partition("\n")[0]
        assert f'"{manifest_codec.MARKER}":{version}' in first.replace(" ", "")
