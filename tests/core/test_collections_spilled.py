"""Collections larger than memory: put, sealed, listed, iterated, streamed and deleted, with most members on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import entrepot
import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
MIB = 1 << 20
MEMBERS, ROWS = 32, MIB  # 8 MiB each: 256 MiB in a store of 128 MiB


@pytest.fixture(scope="module")
def spilling(start_daemon: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a store of 128 MiB with a spill directory."""
    folder = tmp_path_factory.mktemp("spill")
    return str(start_daemon("128MiB", "--spill-path", str(folder)).address)


@pytest.fixture
def store(spilling: str) -> Iterator[entrepot.Store]:
    with entrepot.connect(spilling, scope="tests") as connected:
        yield connected


@pytest.fixture
def arrays(store: entrepot.Store) -> Iterator[entrepot.Collection]:
    builder = store.collection("arrays")
    for index in range(MEMBERS):
        builder.put(np.full(ROWS, index), index=index)
    sealed = builder.seal(MEMBERS)
    assert store.status()["spilled_bytes"] >= 100 * MIB
    yield sealed
    store.delete(sealed.id)
    assert store.status()["objects"] == 0


def _loads(store: entrepot.Store) -> int:
    return int(store.status()["spill"]["loads"])


@pytest.mark.parametrize("prefetch", [0, 2])
def test_every_member_is_reloaded(arrays: entrepot.Collection, prefetch: int) -> None:
    for _ in range(2):
        for index, value in enumerate(arrays.iterate(prefetch=prefetch)):
            assert value[0] == index
            assert value[-1] == index
            assert int(value.sum()) == index * ROWS
            del value
    order = list(range(MEMBERS))
    random.Random(7).shuffle(order)
    for index in order:
        assert int(arrays[index][ROWS // 2]) == index
    assert [int(value[0]) for value in arrays[::-3]] == list(range(MEMBERS))[::-3]


def test_queries_reload_nothing(store: entrepot.Store, arrays: entrepot.Collection) -> None:
    before = _loads(store)
    assert store.collection("arrays").seal() == arrays
    assert store.collection("arrays").indexes() == list(range(MEMBERS))
    listed = store.list()
    assert sorted(info.member_of["index"] for info in listed if info.member_of) == list(range(MEMBERS))
    assert store.info(arrays.ids[0]).type == "numpy.ndarray"
    assert (arrays.nbytes, arrays.rows) == (MEMBERS * ROWS * 8, MEMBERS * ROWS)
    assert _loads(store) == before


def test_deleting_it_reloads_nothing(store: entrepot.Store, arrays: entrepot.Collection) -> None:
    before = _loads(store)
    assert store.delete(arrays.id)
    assert _loads(store) == before


@pytest.mark.slow
def test_tables_are_streamed(store: entrepot.Store) -> None:
    builder = store.collection("tables")
    for index in range(MEMBERS):
        builder.put(pa.table({"n": np.full(ROWS, index)}), index=index)
    tables = builder.seal()
    rows = total = 0
    for batch in tables.to_reader():
        rows += batch.num_rows
        total += int(batch["n"].to_numpy().sum())
        del batch
    expected = (MEMBERS * ROWS, ROWS * sum(range(MEMBERS)))
    assert (rows, total) == expected
    pl = pytest.importorskip("polars")
    lazy = tables.scan_polars().select(pl.len(), pl.col("n").sum())
    assert lazy.collect(engine="streaming").row(0) == expected
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        assert tables.to_duckdb(connection).aggregate("count(*), sum(n)").fetchall() == [expected]
    store.delete(tables.id)
