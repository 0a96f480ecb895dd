"""Collections saved and loaded into another store: the same members, read as one value."""

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
from entrepot_checkpoints import verify


def test_a_collection_comes_back_in_another_store(start_daemon: Any, tmp_path: Any) -> None:
    url = f"file://{tmp_path}/orders"
    with entrepot.connect(start_daemon("64MiB").address, scope="a", session="run") as store:
        builder = store.collection("orders")
        for index in range(3):
            builder.put(pa.table({"n": [index] * 10_000}), index=index)
        sealed = builder.seal()
        store.save(sealed, url)
    with entrepot.connect(start_daemon("64MiB").address, scope="a", session="run") as other:
        assert other.load(url) == sealed.id
        restored = other.get_by_name("orders")
        assert restored == sealed
        assert restored.ids == sealed.ids
        assert restored.to_arrow()["n"].to_pylist()[::10_000] == [0, 1, 2]
        assert other.collection("orders").seal(3) == restored
        other.delete(restored.id)
        assert other.list() == []


def _arrays(store: entrepot.Store) -> entrepot.Collection:
    builder = store.collection("arrays")
    for index in range(6):
        builder.put(np.full(50_000 + index, index), index=index)
    return builder.seal()


@pytest.mark.parametrize(
    ("kept", "name"),
    [
        (slice(1, 3), "arrays[1:3]"),
        (slice(None, None, -2), "arrays[5::-2]"),
        (slice(4, 0, -1), "arrays[4:0:-1]"),
        (slice(2, 2), "arrays[2:2]"),
    ],
)
def test_a_slice_is_saved_as_a_collection_of_its_members(
    store: entrepot.Store, other: entrepot.Store, folder: Any, kept: slice, name: str
) -> None:
    whole = _arrays(store)
    part = whole[kept]
    saved = store.save(part, folder("part"))
    assert saved.objects == 1 + len(part)
    assert store.list("arrays*") == store.list("arrays")  # saving a slice creates no object in the store
    assert not store.save(part, folder("part")).committed
    oid = other.load(folder("part"))
    assert isinstance(oid, entrepot.ObjectID)
    restored = other.get_by_name(name)
    assert isinstance(restored, entrepot.Collection)
    assert (restored.id, restored.name, restored.rows) == (oid, name, part.rows)
    assert restored.ids == part.ids
    assert [int(member[0]) for member in restored] == list(range(6))[kept]
    assert len(other.list("*")) == 1 + len(part)
    # Where the whole collection exists, the slice becomes a collection beside it.
    assert store.load(folder("part")) == oid
    assert len(whole) == 6
    assert [len(member) for member in store.get(oid)] == [len(member) for member in part]


def test_a_selection_is_saved_as_a_collection_of_its_members(
    store: entrepot.Store, other: entrepot.Store, folder: Any
) -> None:
    part = _arrays(store).select([4, 0, 1])
    assert store.save(part, folder("part")).objects == 1 + 3
    oid = other.load(folder("part"))
    assert isinstance(oid, entrepot.ObjectID)
    restored = other.get(oid)
    assert restored.name.startswith("arrays[3 selected, ")
    assert restored.ids == part.ids
    assert [int(member[0]) for member in restored] == [4, 0, 1]


def test_a_slice_of_what_was_made_anew_is_saved_anew(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    store.save(_arrays(store)[1:3], folder("part"))
    builder = store.collection("arrays")
    builder.discard()
    builder.extend([np.full(7, index) for index in range(10, 13)])
    store.save(builder.seal()[1:3], folder("part"))
    other.load(folder("part"))
    assert [member.tolist() for member in other.get_by_name("arrays[1:3]")] == [[11] * 7, [12] * 7]


FRAMES: dict[str, Callable[[int], Any]] = {
    "arrow": lambda n: pa.table({"n": [n] * 1000, "s": [str(n), None] * 500}).slice(n, 900),
    "pandas": lambda n: pd.DataFrame({"n": [n] * 1000}, index=range(n, n + 1000)),
    "polars": lambda n: pl.DataFrame({"n": [n] * 1000}),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES.keys())
def test_a_collection_of_tables_is_a_parquet_data_set(
    store: entrepot.Store, other: entrepot.Store, target: Any, make: Callable[[int], Any]
) -> None:
    builder = store.collection("orders")
    for index in range(4):
        builder.put(make(index), index=index)
    sealed = builder.seal()
    url, options = target("orders"), {"storage_options": target.options}
    assert store.save(sealed, url, format="parquet", **options).objects == 5
    again = store.save(sealed, url, format="parquet", **options)
    assert (again.committed, again.written_bytes) == (False, 0)
    for _ in range(2):
        assert other.load(url, **options) == sealed.id
        restored = other.get_by_name("orders")
        assert (restored.ids, restored.rows, restored.type) == (sealed.ids, sealed.rows, sealed.type)
        assert all(type(table) is type(make(0)) and table.equals(make(n)) for n, table in enumerate(restored))
        other.delete(restored.ids[2])
    store.delete(sealed.ids[1])
    assert store.load(url, replace=True, **options) == sealed.id
    assert store.get_by_name("orders")[1].equals(make(1))
    assert verify(url, **options).ok


def test_anything_reads_the_data_set(store: entrepot.Store, folder: Any) -> None:
    builder = store.collection("orders")
    builder.extend([pa.table({"n": [index] * 10}) for index in range(12)])
    store.save(builder.seal()[::-1], folder("orders"), format="parquet")
    assert pq.read_table(folder("orders/data"))["n"].to_pylist()[::10] == list(range(12))[::-1]
    assert pl.scan_parquet(folder("orders/data/*.parquet")).select(pl.len()).collect().item() == 120


def test_other_collections_are_refused_as_parquet(store: entrepot.Store, folder: Any) -> None:
    with pytest.raises(entrepot.UnsupportedType, match=r"'arrays'.*format='entrepot'"):
        store.save(_arrays(store), folder("t"), format="parquet")
    with pytest.raises(entrepot.UnsupportedType, match="nothing"):
        store.save(store.collection("none").seal(0), folder("t"), format="parquet")


def test_a_data_set_that_was_changed_is_refused(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    builder = store.collection("orders")
    builder.extend([pa.table({"n": [index] * 10}) for index in range(3)])
    store.save(builder.seal(), folder("orders"), format="parquet")
    _, second, _ = sorted(Path(folder("orders/data")).iterdir())
    pq.write_table(pa.table({"n": [9] * 10}), second)
    with pytest.raises(entrepot.CorruptData, match="00000001"):
        other.load(folder("orders"))
    second.unlink()
    with pytest.raises(entrepot.ObjectLost, match="00000001"):
        other.load(folder("orders"))
    with pytest.raises(entrepot.ObjectNotFound):
        other.get_by_name("orders")
