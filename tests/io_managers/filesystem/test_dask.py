"""Dask's collections, read from and written to the store by a URL."""

from __future__ import annotations

from typing import Any

import entrepot
import pytest

pd = pytest.importorskip("pandas")
dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")


@pytest.fixture(autouse=True)
def in_threads() -> Any:
    """Tasks run in this process: a cluster of Dask would need the store's address only."""
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame")
def test_frames_are_written_in_parts_and_read_again(store: entrepot.Store, options: dict[str, Any]) -> None:
    frame = pd.DataFrame({"n": range(1000), "text": [f"row {n}" for n in range(1000)]})
    parts = dd.from_pandas(frame, npartitions=4)
    parts.to_parquet("entrepot://current/frame", storage_options=options)
    assert len(store.list("frame/part.*")) == 4
    read = dd.read_parquet("entrepot://current/frame", storage_options=options)
    assert read.npartitions == 4
    assert int(read["n"].sum().compute()) == 499_500
    # Dask reads text as `string`, whatever pandas wrote.
    pd.testing.assert_frame_equal(read.compute().reset_index(drop=True), frame, check_dtype=False)


def test_a_stored_table_and_files_of_text(store: entrepot.Store, options: dict[str, Any]) -> None:
    store.put(pd.DataFrame({"n": [1, 2, 3]}), name="numbers")
    assert int(dd.read_parquet("entrepot://current/numbers.parquet", storage_options=options)["n"].sum().compute()) == 6
    bags = pytest.importorskip("dask.bag")
    store.put(b"one\ntwo\n", name="lines-1.txt")
    store.put(b"three\n", name="lines-2.txt")
    lines = bags.read_text("entrepot://current/lines-*.txt", storage_options=options)
    assert [line.strip() for line in lines.compute()] == ["one", "two", "three"]
