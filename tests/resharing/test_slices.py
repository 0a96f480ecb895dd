"""The rules by which a put copies the part of a stored value that it uses, instead of keeping all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

MIB = 1 << 20
ROWS = 4 * MIB  # a column of 32 MiB


@pytest.fixture
def store(daemon: Any) -> Iterator[entrepot.Store]:
    with entrepot.connect(daemon.address, scope="tests") as connected:
        yield connected


def test_a_blob_is_referenced_from_half_of_it_on(store: entrepot.Store) -> None:
    parent = store.put(np.arange(ROWS))
    value = store.get(parent)
    half = store.info(store.put(value[: ROWS // 2]))
    assert (half.own_bytes, half.referenced_bytes) == (0, 4 * ROWS)
    assert half.parents == [{"id": str(parent), "nbytes": 4 * ROWS, "kept_bytes": 8 * ROWS}]
    less = store.info(store.put(value[: ROWS // 2 - 1]))
    assert (less.own_bytes, less.referenced_bytes, less.parents) == (4 * ROWS - 8, 0, [])


def test_all_buffers_of_the_new_object_count_together(store: entrepot.Store) -> None:
    value = store.get(store.put(np.arange(ROWS)))
    quarter = ROWS // 4
    parts = store.info(store.put([value[:quarter], value[2 * quarter : 3 * quarter]]))
    assert (parts.own_bytes, parts.referenced_bytes) == (0, 4 * ROWS)


@pytest.mark.parametrize(("nbytes", "own"), [(MIB, 0), (MIB + 64, 100_000)])
def test_a_blob_of_a_mebibyte_is_always_referenced(store: entrepot.Store, nbytes: int, own: int) -> None:
    value = store.get(store.put(np.zeros(nbytes, np.uint8)))
    assert store.info(store.put(value[:100_000])).own_bytes == own


SLICES: dict[str, tuple[Callable[[], Any], Callable[[Any, int], Any], int]] = {
    "array": (lambda: np.arange(ROWS), lambda value, rows: value[:rows], 8),
    "table": (lambda: pa.table({"a": np.arange(ROWS)}), lambda value, rows: value.slice(8, rows), 8),
    "text": (
        lambda: pa.table({"s": pa.array(["x" * 24]).take([0] * ROWS)}),
        lambda value, rows: value.slice(8, rows),
        28,
    ),
    "list": (
        lambda: pa.table({"l": pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), np.arange(ROWS))}),
        lambda value, rows: value.slice(8, rows),
        12,
    ),
    "struct": (
        lambda: pa.table({"s": pa.StructArray.from_arrays([np.arange(ROWS)], ["x"])}),
        lambda value, rows: value.slice(8, rows),
        8,
    ),
    "dictionary": (
        lambda: pa.table({"d": pa.DictionaryArray.from_arrays(np.zeros(ROWS, np.int64), ["x"])}),
        lambda value, rows: value.slice(8, rows),
        8,
    ),
    "pandas": (
        lambda: pd.DataFrame({"a": np.arange(ROWS)}),
        lambda value, rows: value.iloc[8 : 8 + rows].reset_index(drop=True),
        8,
    ),
    "pandas text": (
        lambda: pd.Series(pd.array(["x" * 24], dtype="str")).take(np.zeros(ROWS, int)).reset_index(drop=True),
        lambda value, rows: value.iloc[8 : 8 + rows].reset_index(drop=True),
        32,
    ),
    "polars": (lambda: pl.DataFrame({"a": np.arange(ROWS)}), lambda value, rows: value.slice(8, rows), 8),
}


@pytest.mark.parametrize("kind", SLICES)
def test_a_slice_of_a_hundredth_does_not_keep_its_parent(
    kind: str, store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    build, cut, row_bytes = SLICES[kind]
    parent = store.put(build())
    rows = ROWS // 100
    value = store.get(parent)
    part = store.put(cut(value, rows))
    info = store.info(part)
    assert rows * row_bytes <= info.own_bytes <= rows * row_bytes + 4096
    assert sum(origin["kept_bytes"] for origin in info.parents) <= 4096  # a small dictionary
    most = store.info(store.put(cut(value, ROWS * 3 // 4)))
    assert most.own_bytes <= 4096
    assert [origin["id"] for origin in most.parents] == [str(parent)]
    store.delete(most.id)
    del value
    store.delete(parent)
    wait_until(lambda: store.status()["used_bytes"] < 2 * rows * row_bytes + MIB, "the parent's memory to be free")
    assert len(store.get(part)) == rows


TEXTS = pl.Series("text", [f"{number:024}" for number in range(100_000)])
VIEWS = TEXTS.to_arrow(compat_level=pl.CompatLevel.newest())
OFFSETS = pa.array(np.arange(len(VIEWS) + 1, dtype=np.int32))
NESTED_TEXT: dict[str, Any] = {
    "struct": TEXTS.to_frame().to_struct("s").to_frame(),
    "list": TEXTS.to_frame().select(pl.concat_list("text")),
    "array": TEXTS.reshape((len(TEXTS), 1)).to_frame(),
    "list in struct": TEXTS.to_frame().select(pl.concat_list("text")).to_struct("s").to_frame(),
    "map": pa.table({"m": pa.MapArray.from_arrays(OFFSETS, VIEWS, VIEWS)}),
    "fixed-size list": pa.table({"f": pa.FixedSizeListArray.from_arrays(VIEWS, 2)}),
}


@pytest.mark.parametrize("kind", NESTED_TEXT)
def test_a_small_slice_of_nested_text_does_not_keep_its_parent(kind: str, store: entrepot.Store) -> None:
    value = store.get(store.put(NESTED_TEXT[kind]))
    part = value.slice(1000, 500)
    info = store.info(store.put(part))
    assert info.own_bytes < 60_000
    assert sum(origin["kept_bytes"] for origin in info.parents) == 0
    assert store.get(info.id).equals(part)
    most = store.info(store.put(value.slice(100, len(value) * 3 // 4)))
    assert most.referenced_bytes > 2_000_000
    assert most.own_bytes < 4096
