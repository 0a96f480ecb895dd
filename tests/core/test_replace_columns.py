"""``Store.replace_columns``: a new object that shares all but some columns with another."""

from __future__ import annotations

from typing import Any

import entrepot
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

ROWS = 200_000
NEW = np.arange(ROWS) + 0.5


def columns() -> dict[str, Any]:
    return {"a": np.arange(ROWS), "b": np.arange(ROWS) * 2, "c": np.ones(ROWS, np.float32)}


def arrow_address(table: Any, name: str) -> int:
    return int(table[name].chunk(0).buffers()[1].address)


def numpy_address(value: Any, name: str) -> int:
    array = value[name]
    return int(np.asarray(array).__array_interface__["data"][0])


MAKERS: dict[str, tuple[Any, Any]] = {
    "arrow": (pa.table, arrow_address),
    "pandas": (pd.DataFrame, numpy_address),
    "polars": (pl.DataFrame, numpy_address),
    "dict": (dict, numpy_address),
}


def as_dict(value: Any) -> dict[str, Any]:
    names = value.column_names if isinstance(value, pa.Table) else list(value)
    if isinstance(value, pl.DataFrame):
        names = value.columns
    return {name: np.asarray(value[name]) for name in names}


@pytest.mark.parametrize("library", MAKERS)
def test_the_columns_that_stay_are_shared(store: entrepot.Store, library: str) -> None:
    make, address = MAKERS[library]
    oid = store.put(make(columns()))
    old = store.get(oid)
    changed = store.replace_columns(oid, {"b": NEW, "d": NEW[::-1].copy()}, drop=["c"], name="changed")
    assert store.resolve("changed") == changed
    new = store.get(changed)
    assert type(new) is type(old)
    assert list(as_dict(new)) == ["a", "b", "d"]
    assert (as_dict(new)["a"] == np.arange(ROWS)).all()
    assert (as_dict(new)["b"] == NEW).all()
    assert (as_dict(new)["d"] == NEW[::-1]).all()
    assert address(new, "a") == address(old, "a")
    info = store.info(changed)
    assert info.referenced_bytes == 8 * ROWS
    assert info.own_bytes == 16 * ROWS
    # The old object is as it was, and may go.
    for name, values in columns().items():
        assert (as_dict(store.get(oid))[name] == values).all()
    del old, new
    assert store.delete(oid)
    assert (as_dict(store.get(changed))["a"] == np.arange(ROWS)).all()


@pytest.mark.parametrize("library", MAKERS)
def test_nothing_changed_is_another_object_over_the_same_bytes(store: entrepot.Store, library: str) -> None:
    oid = store.put(MAKERS[library][0](columns()))
    same = store.replace_columns(oid, {})
    assert same != oid
    assert store.info(same).own_bytes == 0


@pytest.mark.parametrize("library", [*MAKERS])
def test_wrong_columns(store: entrepot.Store, library: str) -> None:
    oid = store.put(MAKERS[library][0](columns()))
    wrong_arguments: list[tuple[Any, Any, str]] = [
        ({}, ["z"], "no column 'z' to drop"),
        ({"a": NEW}, ["a"], "both replaced and dropped: 'a'"),
        ({}, "a", "must be a list of names"),
        ({}, None, "must be a list of names"),
        (None, [], "columns must be a mapping"),
        ([("a", NEW)], [], "columns must be a mapping"),
    ]
    for changed, drop, words in wrong_arguments:
        with pytest.raises(entrepot.InvalidArgument, match=words):
            store.replace_columns(oid, changed, drop=drop)
    if library != "dict":
        two_axes = [] if library == "polars" else [np.zeros((ROWS, 2))]  # Polars makes a column of arrays of it
        for wrong in ("text", (number for number in range(3)), *two_axes):
            with pytest.raises(entrepot.InvalidArgument, match="column 'a'"):
                store.replace_columns(oid, {"a": wrong})
        with pytest.raises(entrepot.InvalidArgument, match=f"'a' has 3 values, but the table has {ROWS} rows"):
            store.replace_columns(oid, {"a": np.arange(3)})
    assert len(store.list()) == 1
    dropped = store.get(store.replace_columns(oid, {}, drop=["a", "a"]))
    assert "a" not in as_dict(dropped)


def test_arrow_columns_keep_their_place_and_the_metadata(store: entrepot.Store) -> None:
    table = pa.table(columns()).replace_schema_metadata({"unit": "m"})
    oid = store.put(table)
    changed = store.get(store.replace_columns(oid, {"a": pa.chunked_array([["x"] * ROWS]), "z": ["y"] * ROWS}))
    assert changed.column_names == ["a", "b", "c", "z"]
    assert changed.schema.metadata == {b"unit": b"m"}
    assert changed.schema.field("a").type == pa.string()
    with pytest.raises(entrepot.InvalidArgument, match="must be a string, but got 7"):
        store.replace_columns(oid, {7: NEW})
    with pytest.raises(entrepot.InvalidArgument, match=r"'a'.*cannot be converted"):
        store.replace_columns(oid, {"a": [object()] * ROWS})
    twice = store.put(pa.Table.from_arrays([table["a"], table["b"]], names=["n", "n"]))
    with pytest.raises(entrepot.InvalidArgument, match="names differ"):
        store.replace_columns(twice, {"n": NEW})


def test_pandas_frames_keep_index_labels_and_attributes(store: entrepot.Store) -> None:
    frame = pd.DataFrame({0: np.arange(4), "s": ["a", "b", "c", "d"]}, index=pd.Index([5, 6, 7, 8], name="i"))
    frame.attrs["unit"] = "m"
    oid = store.put(frame)
    changed = store.get(store.replace_columns(oid, {0: [1.5, 2.5, 3.5, 4.5], "one": 1}, drop=["s"]))
    assert changed.attrs == {"unit": "m"}
    expected = pd.DataFrame({0: [1.5, 2.5, 3.5, 4.5], "one": 1}, index=frame.index)
    pd.testing.assert_frame_equal(changed, expected)
    pd.testing.assert_frame_equal(store.get(oid), frame)


@pytest.mark.parametrize("value", [b"bytes", [1, 2], 7, np.arange(9)], ids=["bytes", "list", "int", "array"])
def test_values_without_columns_are_refused(store: entrepot.Store, value: Any) -> None:
    with pytest.raises(entrepot.UnsupportedType, match=f"the object is a .*{type(value).__name__}"):
        store.replace_columns(store.put(value), {"a": NEW})


def test_an_unknown_object_and_a_taken_name(store: entrepot.Store) -> None:
    with pytest.raises(entrepot.ObjectNotFound):
        store.replace_columns(entrepot.ObjectID.random(), {})
    oid = store.put({"a": NEW}, name="taken")
    with pytest.raises(entrepot.ObjectExists):
        store.replace_columns(oid, {"a": 1}, name="taken")
    changed = store.replace_columns(oid, {"a": 1}, name="taken", replace=True)
    assert store.get_by_name("taken") == {"a": 1}
    assert store.get(changed) == {"a": 1}
