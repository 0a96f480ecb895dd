"""How much of a value that was read is a copy, by the addresses of its buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entrepot_io.conversions import convert
from entrepot_io.copied_bytes import MAX_PARTS, copied_bytes

ROWS = 50_000
TEXT = [f"a text of the row {number}" for number in range(ROWS)]
VALUES: dict[str, Any] = {
    "array": np.arange(ROWS),
    "pandas": pd.DataFrame({"n": np.arange(ROWS), "s": pd.array(TEXT, dtype="string[pyarrow]")}),
    "dates": pd.DataFrame({"day": pd.date_range("2026-01-01", periods=ROWS, freq="s")}),
    "polars": pl.DataFrame({"n": range(ROWS), "s": TEXT}),
    "arrow": pa.table({"n": range(ROWS), "c": pa.array(["x", "y"] * (ROWS // 2)).dictionary_encode()}),
    "column": pa.chunked_array([list(range(ROWS))]),
    "several": {"a": np.zeros(ROWS), "more": [np.ones(ROWS), np.zeros(ROWS)]},
}


@pytest.fixture(scope="module")
def store(module_daemon: Any) -> Iterator[entrepot.Store]:
    """Connection to a store of the module."""
    with entrepot.connect(module_daemon.address, scope="copied bytes") as connected:
        yield connected


@pytest.mark.parametrize("kind", VALUES)
def test_views_are_no_copies_and_copies_are(kind: str, store: entrepot.Store) -> None:
    oid = store.put(VALUES[kind])
    everything = copied_bytes(VALUES[kind])
    assert everything is not None
    assert everything >= ROWS * 8
    assert copied_bytes(store.get(oid)) == 0
    assert copied_bytes(store.get(oid, copy="always")) == everything


def test_pages_that_are_copied_when_they_are_written_count_as_views(store: entrepot.Store) -> None:
    assert copied_bytes(store.get(store.put(VALUES["array"]), copy="on_write")) == 0


def test_a_conversion_that_copies_one_column(store: entrepot.Store) -> None:
    frame = convert(store.get(store.put(VALUES["pandas"])), "arrow")
    assert copied_bytes(frame) == 0
    mixed = frame.append_column("new", pa.array(np.arange(ROWS)))
    assert copied_bytes(mixed) == ROWS * 8


def test_pythons_own_objects_are_copies(store: entrepot.Store) -> None:
    assert (copied_bytes(store.get(store.put(b"x" * 100_000))) or 0) >= 100_000
    frame = pd.DataFrame({"text": pd.Series(TEXT, dtype=object)})
    assert copied_bytes(store.get(store.put(frame))) == ROWS * 8


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


WIDE = pl.DataFrame({"n": [2**100]}, schema={"n": pl.Int128})  # for which Arrow has no type
UNLOCATED: dict[str, Any] = {
    "an object": object(),
    "a plan": pl.LazyFrame({"n": [1]}),
    "an object in a dict": {"a": object()},
    "many": [1] * (MAX_PARTS + 1),
    "deep": nested(MAX_PARTS - 1),
    "128 bits": WIDE,
    "128 bits beside others": WIDE.with_columns(pl.lit("x").alias("s")),
    "128 bits, without a sign": pl.DataFrame({"n": [2**100]}, schema={"n": pl.UInt128}),
    "128 bits in a struct": WIDE.select(pl.struct("n")),
    "frames in a list": [WIDE, WIDE],
    "frames in a dict": {"a": pl.DataFrame({"n": [1]}), "b": WIDE},
}


@pytest.mark.parametrize("value", UNLOCATED.values(), ids=UNLOCATED)
def test_what_cannot_be_located_is_not_guessed(value: Any) -> None:
    assert copied_bytes(value) is None


def test_memory_in_which_values_are_made_is_not_what_was_read(store: entrepot.Store) -> None:
    with store.allocating():
        made = np.arange(ROWS * 10)
    assert copied_bytes(made) == made.nbytes


@pytest.mark.parametrize("value", [np.empty(0), pa.table({"n": pa.array([], pa.int64())}), {}, []], ids=type)
def test_nothing(value: Any) -> None:
    assert copied_bytes(value) == 0
