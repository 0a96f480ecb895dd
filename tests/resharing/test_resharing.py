"""A put of a value derived from a stored one references the stored bytes: by library and operation, byte by byte."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sharing_case import COLUMN, Case, bytes_outside, ranges_of
from sharing_tables import LIBRARIES, PAGE, page_with_tables

# What an object's own bytes may exceed the expected ones by: short buffers, and padding of those that are stored
# together. Less than anything that a case could copy unnoticed, which is at least a bit for each row.
SLACK = 2048

ALL = [
    pytest.param(library, case, expression, id=f"{library}: {expression}")
    for library, module in LIBRARIES.items()
    for case in module.CASES
    for expression in case.expressions
]


@pytest.fixture(scope="module")
def address(module_daemon: Any) -> str:
    return str(module_daemon.address)


@pytest.fixture(scope="module")
def writer(address: str) -> Iterator[entrepot.Store]:
    with entrepot.connect(address, scope="tests") as store:
        yield store


@pytest.fixture(scope="module")
def reader(address: str) -> Iterator[entrepot.Store]:
    """Another connection."""
    with entrepot.connect(address, scope="tests") as store:
        yield store


def assert_same(value: Any, expected: Any) -> None:
    """Same type, same contents."""
    assert type(value) is type(expected)
    if isinstance(value, pd.DataFrame):
        pd.testing.assert_frame_equal(value, expected)
    elif isinstance(value, pd.Series):
        pd.testing.assert_series_equal(value, expected)
    elif isinstance(value, pd.Index):
        pd.testing.assert_index_equal(value, expected)
    elif isinstance(value, (pl.DataFrame, pl.Series)):
        assert value.equals(expected)
    elif isinstance(value, np.ma.MaskedArray):
        np.testing.assert_array_equal(np.ma.getmaskarray(value), np.ma.getmaskarray(expected))
        np.testing.assert_array_equal(value.compressed(), expected.compressed())
    elif isinstance(value, np.ndarray):
        assert value.dtype == expected.dtype
        np.testing.assert_array_equal(value, expected)
    elif isinstance(value, dict):
        assert value.keys() == expected.keys()
        for key, item in value.items():
            assert_same(item, expected[key])
    elif isinstance(value, list):
        for item, other in zip(value, expected, strict=True):
            assert_same(item, other)
    elif isinstance(value, memoryview):
        assert value == expected
    else:
        assert value.equals(expected)
        if isinstance(value, (pa.Table, pa.RecordBatch)):
            assert value.schema.equals(expected.schema, check_metadata=True)


@pytest.mark.parametrize(("library", "case", "expression"), ALL)
def test_only_what_is_new_is_stored(
    library: str, case: Case, expression: str, writer: entrepot.Store, reader: entrepot.Store
) -> None:
    module = LIBRARIES[library]
    parent = writer.put(module.PARENTS[case.parent]())
    derived_value = eval(expression, module.VALUES | {case.parent: writer.get(parent)})
    derived = writer.put(derived_value)
    try:
        read = reader.get(derived)
        assert_same(read, derived_value)
        info = writer.info(derived)
        assert case.new <= info.own_bytes <= case.new + SLACK
        outside = bytes_outside(ranges_of(read), ranges_of(reader.get(parent)))
        assert outside <= info.own_bytes
        if not case.new:
            assert outside <= SLACK
            assert [origin["id"] for origin in info.parents] == [str(parent)]
    finally:
        del derived_value
        writer.delete(derived)
        writer.delete(parent)


@pytest.mark.parametrize(
    ("library", "parent", "nbytes"),
    [("NumPy", "a", COLUMN), ("Arrow", "t", 3 * COLUMN), ("pandas", "df", 4 * COLUMN), ("Polars", "n", 2 * COLUMN)],
)
def test_a_private_copy_shares_nothing(library: str, parent: str, nbytes: int, writer: entrepot.Store) -> None:
    stored = writer.put(LIBRARIES[library].PARENTS[parent]())
    copy = writer.put(writer.get(stored, copy="always"))
    info = writer.info(copy)
    writer.delete(stored)
    writer.delete(copy)
    assert info.own_bytes >= nbytes
    assert (info.referenced_bytes, info.parents) == (0, [])


def test_the_page_shows_these_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with_tables(), "run python tests/resharing/sharing_tables.py"


def test_columns_stored_as_neighbours_are_shared_one_by_one(new_daemon: Callable[..., Any]) -> None:
    rows = 1 << 17  # 1 MiB a column: a store without holes puts such columns side by side
    frame = pd.DataFrame({name: np.arange(rows) + number for number, name in enumerate("abcdef")}, copy=False)
    with entrepot.connect(new_daemon("64MiB").address) as writer:
        first = writer.put(pd.concat([frame[[name]] for name in frame], axis=1))
        got = writer.get(first)
        addresses = [got[name].to_numpy().ctypes.data for name in got]
        assert [later - earlier for earlier, later in itertools.pairwise(addresses)] == [8 * rows] * 5, "no neighbours"
        changed = got.copy(deep=False)
        changed["f"] = got["a"] + got["b"]
        second = writer.put(changed)
        before, after = (
            {(blob["blob"], blob["generation"]): blob["length"] for blob in writer.info(oid).blobs}
            for oid in (first, second)
        )
        assert sum(length for blob, length in after.items() if blob not in before) <= 8 * rows + SLACK
        assert_same(writer.get(second), changed)
