"""Tables as Parquet: other tools can read the files, and loading them restores the original tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

TABLES: dict[str, Callable[[], Any]] = {
    "arrow": lambda: pa.table({"a": range(9000), "d": pa.array(["u", "v", None] * 3000).dictionary_encode()}),
    "arrow without rows": lambda: pa.table({"a": pa.array([], pa.int8())}),
    "pandas": lambda: pd.DataFrame({"a": np.arange(900.0), "s": ["x", None, "z"] * 300}, index=range(5, 905)),
    "polars": lambda: pl.DataFrame({"a": range(900), "e": pl.Series(["x", "y", "x"] * 300, dtype=pl.Enum(["x", "y"]))}),
}


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES.keys())
def test_a_table_comes_back(store: entrepot.Store, other: entrepot.Store, target: Any, make: Callable[[], Any]) -> None:
    oid = store.put(make(), name="the table/1")
    first = store.save(oid, target("t"), format="parquet", storage_options=target.options)
    assert first.committed
    assert first.written_bytes > 0
    again = store.save(oid, target("t"), format="parquet", storage_options=target.options)
    assert (again.committed, again.written_bytes) == (False, 0)
    assert other.load(target("t"), storage_options=target.options) == oid
    value = other.get_by_name("the table/1")
    assert type(value) is type(make())
    assert value.equals(make())
    assert store.load(target("t"), storage_options=target.options) == oid


def test_anything_reads_the_files(store: entrepot.Store, folder: Any) -> None:
    store.save(store.put(TABLES["polars"](), name="orders"), folder("t"), format="parquet")
    (file,) = Path(folder("t")).glob("*.parquet")
    assert file.name.startswith("orders-")
    assert pq.read_table(file).num_rows == 900


def test_a_new_save_leaves_only_its_own_files(store: entrepot.Store, folder: Any) -> None:
    store.put(TABLES["arrow"](), name="t")
    store.save(store.resolve("t"), folder("t"), format="parquet")
    store.put(TABLES["arrow without rows"](), name="t", replace=True)
    store.save(store.resolve("t"), folder("t"), format="parquet")
    (file,) = Path(folder("t")).glob("*.parquet")
    assert pq.read_table(file).num_rows == 0


@pytest.mark.parametrize(
    "value",
    [
        np.arange(5),
        {"a": 1},
        pd.DataFrame({"o": [object()]}),
        pd.DataFrame({"a": pd.Series([1 + 2j])}),
        pa.table({"u": pa.array([1], pa.duration("s")), "x": pa.nulls(1)}).append_column(
            "run", pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array(["x"]))
        ),
    ],
    ids=["an array", "a dictionary", "objects", "complex numbers", "run ends"],
)
def test_what_parquet_does_not_keep_is_refused(store: entrepot.Store, folder: Any, value: Any) -> None:
    with pytest.raises(entrepot.UnsupportedType, match="format='entrepot'"):
        store.save(store.put(value), folder("t"), format="parquet")
    assert not Path(folder("t")).exists()


def test_a_changed_file_is_refused(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    oid = store.put(TABLES["arrow"]())
    store.save(oid, folder("t"), format="parquet")
    (file,) = Path(folder("t")).glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + b"\0" + whole[101:])
    with pytest.raises(entrepot.CorruptData, match=r"\.parquet"):
        other.load(folder("t"))
    file.unlink()
    with pytest.raises(entrepot.ObjectLost, match=r"\.parquet"):
        other.load(folder("t"))
    assert other.list() == []
