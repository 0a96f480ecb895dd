"""A value keeps the memory that it refers to, until the last value derived from it is gone."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from entrepot._codecs.builtin import codec_specs as builtin_specs
from entrepot.codec import CodecRegistry, Decoder, unpack_tree
from entrepot_io.codecs import codec_specs
from scipy import sparse

REGISTRY = CodecRegistry([*builtin_specs(), *codec_specs()], entry_points=False)
NUMBERS = np.arange(10_000)


class Pin(bytearray):
    """Stands for an object's mapped bytes; the object stays pinned while this is alive."""


def interleaved() -> pd.DataFrame:
    return pd.DataFrame({"a": NUMBERS, "b": NUMBERS / 2, "c": NUMBERS + 1, "d": NUMBERS / 3}).copy()


SPARSE: Any = sparse.eye_array(10_000, format="csr")
VALUES: dict[str, tuple[Any, Any]] = {
    "ndarray": (NUMBERS, lambda value: value[5:10]),
    "matrix": (NUMBERS.reshape(100, 100).T, lambda value: value[0]),
    "masked": (np.ma.array(NUMBERS, mask=NUMBERS % 2 == 0), lambda value: value[5:10]),
    "broadcast": (np.broadcast_to(NUMBERS, (5, 10_000)), lambda value: value[3]),
    "memoryview": (memoryview(bytes(10_000)), lambda value: value[5:10]),
    "arrow table": (pa.table({"a": NUMBERS}), lambda value: value["a"].chunk(0).slice(5, 5)),
    "arrow text": (pa.array(map(str, range(100_000))), lambda value: value.buffers()[2]),
    "arrow buffer": (pa.py_buffer(bytes(10_000)), lambda value: value.slice(5, 5)),
    "frame": (interleaved(), lambda value: value["c"]),
    "series": (pd.Series(NUMBERS), lambda value: value.to_numpy()),
    "index": (pd.Index(NUMBERS), lambda value: value[5:10]),
    "nullable": (pd.Series(pd.array(NUMBERS, dtype="Int64")), lambda value: value.iloc[5:10]),
    "polars": (pl.DataFrame({"a": NUMBERS}), lambda value: value["a"].slice(5, 5)),
    "sparse": (SPARSE, lambda value: value.indices),
    "sparse product": (SPARSE, lambda value: value.T),
    "xarray": (xr.Dataset({"a": ("x", NUMBERS)}), lambda value: value["a"].isel(x=slice(5, 10))),
    "nested": ({"a": [(NUMBERS,)]}, lambda value: value["a"][0][0]),
    "pickled": (NUMBERS.astype(object), None),
}


@pytest.mark.parametrize("name", VALUES)
def test_memory_lives_as_long_as_a_part_of_the_value(put: Any, name: str) -> None:
    value, part_of = VALUES[name]
    stored = put(value, allow_pickle=True)
    pins = [Pin(data) for data in stored.buffers]
    watched = [weakref.ref(pin) for pin in pins]
    decoder = Decoder(REGISTRY, lambda index: memoryview(pins[index]).toreadonly(), len(pins))
    back = decoder.decode(unpack_tree(stored.tree))
    del decoder
    pins.clear()
    if part_of is not None:
        part = part_of(back)
        del back
        gc.collect()
        assert any(pin() is not None for pin in watched)
        del part
    else:
        del back
    gc.collect()
    assert [pin() for pin in watched] == [None] * len(watched)
