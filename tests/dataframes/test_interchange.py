"""Dask DataFrames and arrays as collections, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from entrepot import InvalidArgument, ObjectExists, ObjectNotFound, UnsupportedType
from entrepot_frames import from_collection, to_collection

dask = pytest.importorskip("dask")
dask_array = pytest.importorskip("dask.array")
dask_frames: Any = pytest.importorskip("dask.dataframe")


def frame(rows: int = 1000) -> pd.DataFrame:
    numbers = np.arange(rows)
    texts = pd.array([f"text {number}" for number in numbers], dtype="string[pyarrow]")
    return pd.DataFrame({"key": numbers % 7, "price": numbers / 2, "text": texts})


def assert_same(frames: Any, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(frames.compute().reset_index(drop=True), expected.reset_index(drop=True))


def test_partitions_are_members_in_their_order(store: entrepot.Store) -> None:
    collection = to_collection(dask_frames.from_pandas(frame(), npartitions=4), "partitions", store=store)
    assert (len(collection), collection.rows) == (4, 1000)
    back = from_collection("partitions", "dask.dataframe", store=store)
    assert back.npartitions == 4
    assert_same(back, frame())
    assert back.groupby("key").price.sum().compute().equals(frame().groupby("key").price.sum())


def test_an_index_that_does_not_count_rows_is_kept(store: entrepot.Store) -> None:
    indexed = dask_frames.from_pandas(frame(), npartitions=3).set_index("price")
    collection = to_collection(indexed[indexed.key == 3], "indexed", store=store)
    expected = frame().set_index("price")
    pd.testing.assert_frame_equal(from_collection(collection, "dask.dataframe").compute(), expected[expected.key == 3])


def test_empty_partitions(store: entrepot.Store) -> None:
    rows = dask_frames.from_pandas(frame(), npartitions=4)
    collection = to_collection(rows[rows.price < 10], "few", store=store)
    assert (len(collection), collection.rows) == (4, 20)
    assert_same(from_collection(collection, "dask.dataframe"), frame(20))


def test_arrow_tables_are_frames(store: entrepot.Store) -> None:
    builder = store.collection("tables")
    for index in range(3):
        builder.put(pa.table({"n": [index, index + 1], "text": ["a", None]}), index=index)
    rows = from_collection(builder.seal(3), "dask.dataframe").compute()
    assert rows.n.tolist() == [0, 1, 1, 2, 2, 3]
    assert rows.text.isna().tolist() == [False, True] * 3


def test_a_partition_is_read_without_a_copy(store: entrepot.Store) -> None:
    collection = to_collection(dask_frames.from_pandas(frame(), npartitions=1), "views", store=store)
    (partition,) = from_collection(collection, "dask.dataframe").to_delayed()
    member, read = collection[0]["price"].to_numpy(), dask.compute(partition)[0]["price"].to_numpy()
    assert member.__array_interface__["data"] == read.__array_interface__["data"]


@pytest.mark.parametrize("shape", [(100,), (100, 20), (100, 4, 6)], ids=str)
def test_arrays(shape: tuple[int, ...], store: entrepot.Store) -> None:
    values = np.random.default_rng(1).random(shape)
    chunked = dask_array.from_array(values, chunks=(30, *(3 for _ in shape[1:])))
    name = f"array {shape}"
    collection = to_collection(chunked, name, store=store)
    back = from_collection(name, "dask.array", store=store)
    assert back.chunks[0] == (30, 30, 30, 10)
    assert len(collection) == 4
    assert np.array_equal(back.compute(), values)


def test_a_name_is_taken_once(store: entrepot.Store) -> None:
    rows = dask_frames.from_pandas(frame(10), npartitions=1)
    to_collection(rows, "taken", store=store)
    with pytest.raises(ObjectExists, match="'taken' is taken"):
        to_collection(rows, "taken", store=store)
    assert store.get_by_name("taken").rows == 10
    more = dask_frames.from_pandas(frame(20), npartitions=2)
    assert to_collection(more, "taken", store=store, replace=True).rows == 20


def test_a_failed_partition_leaves_nothing(store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    def half(part: pd.DataFrame) -> pd.DataFrame:
        if part.price.max() > 300:
            raise ValueError("too expensive")
        return part

    before = store.status()["used_bytes"]
    rows = dask_frames.from_pandas(frame(), npartitions=4).map_partitions(half, meta=frame(0))
    with pytest.raises(ValueError, match="too expensive"):
        to_collection(rows, "failed", store=store)
    with pytest.raises(ObjectNotFound):
        store.get_by_name("failed")
    # Partitions that were being computed when the other one failed are stored first, and deleted then.
    wait_until(lambda: store.status()["used_bytes"] <= before, "other partitions to be deleted")
    wait_until(lambda: not store.collection("failed").discard(), "other partitions to be no members any more")


def test_what_does_not_fit_is_said(store: entrepot.Store) -> None:
    with pytest.raises(UnsupportedType, match="not DataFrame"):
        to_collection(frame(), "frame", store=store)
    array = to_collection(dask_array.ones((4, 4), chunks=2), "ones", store=store)
    with pytest.raises(InvalidArgument, match="not tables"):
        from_collection(array, "dask.dataframe")
    with pytest.raises(InvalidArgument, match=r"unknown: use one of 'dask\.dataframe'"):
        from_collection(array, "spark")  # type: ignore[arg-type]
    with pytest.raises(ObjectNotFound):
        from_collection("nothing", "dask.array", store=store)
