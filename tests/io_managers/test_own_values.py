"""Values that their reader may modify: no other reader sees it, and nothing is copied unless it is modified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entrepot import Store, connect
from entrepot_io import own_values
from entrepot_io.own_values import copy_mode_of, protect

ROWS = 5_000


@pytest.fixture
def store(daemon: Any) -> Iterator[Store]:
    with connect(daemon.address, scope="tests", session="") as opened:
        yield opened


pandas_3 = pytest.mark.skipif(int(pd.__version__.partition(".")[0]) < 3, reason="pandas' copy-on-write begins with 3")


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "i": np.arange(ROWS),
            "j": np.arange(ROWS) * 2,
            "f": np.linspace(0, 1, ROWS),
            "day": pd.date_range("2026-01-01", periods=ROWS, freq="min"),
            "text": ["a", "b"] * (ROWS // 2),
            "kind": pd.Categorical(["u", "v"] * (ROWS // 2)),
            "maybe": pd.array([1, None] * (ROWS // 2), dtype="Int64"),
        }
    )


def own(store: Store, oid: Any) -> Any:
    value = store.get(oid, copy=copy_mode_of(store, oid))
    protect(value)
    return value


def put(store: Store, value: Any) -> Any:
    oid = store.derive("value")
    store.put(value, id=oid, replace=True)
    return oid


@pandas_3
def test_objects_in_cells_and_attributes_are_the_readers_own(store: Store) -> None:
    """pandas copies a block before it writes to it, but not the objects in its cells."""
    shared = np.zeros(3)
    table = pd.DataFrame(
        {"n": [1, 2, 3], "object": [shared, shared, [np.ones(1000)]], "text": pd.Series(["a", None, "b"], dtype=object)}
    )
    table.attrs["weights"] = np.zeros(2000)
    oid = put(store, table)
    first, second = own(store, oid), own(store, oid)
    first["object"].iloc[0][0] = 5
    assert first["object"].iloc[1][0] == 5, "as the array was one"
    first["object"].iloc[2][0][0] = 7
    first.attrs["weights"][0] = 9
    assert not second["object"].iloc[0].any()
    assert second["object"].iloc[2][0][0] == 1
    assert not second.attrs["weights"].any()
    series = own(store, put(store, table["object"]))
    series.iloc[0].sort()


WRITES: dict[str, Callable[[pd.DataFrame], object]] = {
    "loc": lambda table: table.loc.__setitem__((0, "i"), 7),
    "iloc": lambda table: table.iloc.__setitem__((slice(None), 2), 0.5),
    "at": lambda table: table.at.__setitem__((3, "day"), pd.Timestamp("2030-01-01")),
    "augmented": lambda table: table.__setitem__("f", table["f"].__iadd__(1)),
    "mask": lambda table: table.loc.__setitem__((table["i"] > 10, "j"), -1),
    "category": lambda table: table.loc.__setitem__((0, "kind"), "v"),
    "missing": lambda table: table.loc.__setitem__((1, "maybe"), 5),
    "text": lambda table: table.loc.__setitem__((0, "text"), "z"),
    "fillna": lambda table: table.fillna({"maybe": 0}, inplace=True),
    "sort": lambda table: table.sort_values("i", ascending=False, inplace=True),
    "replace": lambda table: table.replace({"i": {1: 100}}, inplace=True),
}


@pytest.mark.parametrize("copy", ["on_write", "always"])
def test_elements_of_a_broadcast_array_are_each_their_own(store: Store, copy: Any) -> None:
    for value in (np.broadcast_to(np.arange(3_000.0), (4, 3_000)), np.broadcast_to(np.float64(1.5), (2, 3))):
        mine = store.get(put(store, {"array": value}), copy=copy)["array"]
        assert mine.flags.writeable
        mine[0] = -1
        np.testing.assert_array_equal(mine[1:], value[1:])
        views = store.get(put(store, value))
        assert (views.strides, views.flags.writeable) == (value.strides, False)


@pandas_3
def test_a_frame_is_its_readers_own(store: Store) -> None:
    oid = put(store, frame())
    other = own(store, oid)
    for name, write in WRITES.items():
        mine, expected = own(store, oid), frame()
        write(expected)
        write(mine)
        pd.testing.assert_frame_equal(mine, expected, obj=name)
        write(mine)  # its own block by now
        pd.testing.assert_frame_equal(other, frame(), obj=name)
        pd.testing.assert_frame_equal(own(store, oid), frame(), obj=name)


@pandas_3
def test_a_frame_is_copied_only_where_it_is_modified(store: Store) -> None:
    table = pd.DataFrame({"i": np.arange(ROWS), "f": np.linspace(0, 1, ROWS)})
    oid = put(store, table)
    mine, stored = own(store, oid), store.get(oid)
    assert copy_mode_of(store, oid) == "never"

    def shares(column: str) -> bool:
        return np.shares_memory(mine[column].to_numpy(), stored[column].to_numpy())

    # Two gets map the same segment once.
    assert (shares("i"), shares("f")) == (True, True)
    mine.loc[0, "i"] = 7
    assert (shares("i"), shares("f")) == (False, True)


@pandas_3
def test_what_is_derived_from_a_frame_is_protected_too(store: Store) -> None:
    oid = put(store, frame())
    column, part = own(store, oid)["f"], own(store, oid)[["i", "j"]]
    column.iloc[0] = 9
    part.loc[0, "j"] = 9
    assert (column.iloc[0], part.loc[0, "j"]) == (9, 9)
    pd.testing.assert_frame_equal(own(store, oid), frame())


@pandas_3
def test_a_series_is_its_readers_own(store: Store) -> None:
    oid = put(store, pd.Series(np.arange(ROWS), name="x"))
    mine = own(store, oid)
    mine.iloc[0] = 7
    assert (mine.iloc[0], own(store, oid).iloc[0]) == (7, 0)


@pandas_3
def test_an_unmodified_frame_shares_its_bytes_when_it_is_stored_again(store: Store) -> None:
    oid, again = put(store, pd.DataFrame({"i": np.arange(1_000_000)})), store.derive("again")
    store.put(own(store, oid), id=again)
    assert np.shares_memory(store.get(oid)["i"].to_numpy(), store.get(again)["i"].to_numpy())
    modified = own(store, oid)
    modified.loc[0, "i"] = 7
    store.put(modified, id=again, replace=True)
    assert not np.shares_memory(store.get(oid)["i"].to_numpy(), store.get(again)["i"].to_numpy())


def test_modes(store: Store) -> None:
    values: list[tuple[Any, str]] = [
        (np.arange(ROWS), "on_write"),
        ({"a": np.arange(ROWS)}, "on_write"),
        (pa.table({"a": list(range(ROWS))}), "never"),
        (pl.DataFrame({"a": list(range(ROWS))}), "never"),
        (b"x" * ROWS, "never"),
    ]
    for value, mode in values:
        assert copy_mode_of(store, put(store, value)) == mode, type(value)
    assert copy_mode_of(store, store.derive("none")) == "on_write"


def test_arrays_in_containers_are_their_readers_own(store: Store) -> None:
    oid = put(store, {"a": np.arange(ROWS), "b": [np.zeros(ROWS)]})
    mine, other = own(store, oid), own(store, oid)
    mine["a"][0] = 7
    mine["b"][0] += 1
    assert (mine["a"][0], other["a"][0], own(store, oid)["a"][0]) == (7, 0, 0)
    assert not other["b"][0].any()


def test_without_pandas_copy_on_write_frames_are_in_private_pages(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_values, "_pandas_copies_shared_blocks", lambda: False)
    oid = put(store, frame())
    mine = own(store, oid)
    mine.loc[0, "i"] = 7
    assert (mine.loc[0, "i"], own(store, oid).loc[0, "i"]) == (7, 0)
