"""Damaged metadata and buffers raise typed errors; they never crash or raise another library's exceptions."""

from __future__ import annotations

import copy
import datetime as dt
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pytest
import xarray as xr
from entrepot.codec import Node, pack_tree, unpack_tree
from entrepot.errors import CorruptData, UnsupportedType, VersionMismatch
from scipy import sparse

sys.path.insert(0, str(Path(__file__).parent))

from damaged_trees import expect_corrupt, tree_of

run_end_encode: Any = getattr(pyarrow.compute, "run_end_encode")  # noqa: B009 - made at import
ROUNDS = 250
# UnsupportedType: the damage created the name of an unknown extension type; VersionMismatch: an unknown codec or
# version.
TYPED = (CorruptData, UnsupportedType, VersionMismatch)
STRANGE: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    7,
    2**31,
    2**62,
    2**63 - 1,
    2**64 - 1,
    1.5,
    float("nan"),
    "",
    "<f8",
    "O",
    "|V1000",
    "list",
    "\x00",
    b"",
    b"\xff" * 9,
    [],
    [1],
    [-1, 2**62],
    [[]] * 6,
    {},
    {
        "names": ["a"],
        "formats": ["O"],
        "offsets": [0],
        "titles": [None],
        "itemsize": 8,
        "aligned": False,
        "record": False,
    },
]


def samples() -> dict[str, Any]:
    """One value per codec, with buffers of its own."""
    n = 2000
    numbers: Any = np.arange(n)
    array: Any = pd.array
    text = [f"a text longer than a view {number}" for number in range(n)]
    arrow = {
        "int": pa.array(numbers),
        "nulls": pa.array([None if k % 3 else k for k in range(n)]),
        "text": pa.array(text),
        "views": pa.array(text, pa.string_view()),
        "bool": pa.array([k % 2 == 0 for k in range(n)]),
        "list": pa.array([[k, None] for k in range(n)]),
        "list view": pa.array([[k] for k in range(n)], pa.list_view(pa.int64())),
        "fixed": pa.array([[k, k] for k in range(n)], pa.list_(pa.int64(), 2)),
        "struct": pa.array([{"a": k, "b": str(k)} for k in range(n)]),
        "map": pa.array([[(str(k), k)] for k in range(n)], pa.map_(pa.string(), pa.int64())),
        "dictionary": pa.array([str(k % 7) for k in range(n)]).dictionary_encode(),
        "runs": run_end_encode(pa.array([k // 3 for k in range(n)])),
        "sparse": pa.UnionArray.from_sparse(pa.array([k % 2 for k in range(n)], pa.int8()), [pa.array(numbers)] * 2),
        "dense": pa.UnionArray.from_dense(
            pa.array([k % 2 for k in range(n)], pa.int8()),
            pa.array([k // 2 for k in range(n)], pa.int32()),
            [pa.array(numbers)] * 2,
        ),
        "uuid": pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([k.to_bytes(16, "big") for k in range(n)], pa.binary(16))
        ),
        "null": pa.nulls(n),
    }
    values: dict[str, Any] = {f"arrow {name}": array for name, array in arrow.items()}
    values["table"] = pa.table(arrow)
    values["batch"] = pa.record_batch([arrow["text"], arrow["int"]], names=["a", "b"])
    values["chunked"] = pa.chunked_array([arrow["text"], arrow["text"].slice(3)])
    values["buffer"] = pa.py_buffer(b"x" * 1000)
    values["scalar"] = pa.scalar([1, 2])
    values["schema"] = pa.schema([pa.field("a", pa.uuid())])
    values["type"] = pa.dictionary(pa.int8(), pa.string())
    values["field"] = pa.field("a", pa.int8())
    values["numpy"] = numbers.reshape(40, 50).T
    values["numpy broadcast"] = np.broadcast_to(numbers, (3, n))
    values["numpy fields"] = np.zeros(n, [("a", "i4"), ("b", "<U3", (2, 2)), ("c", [("d", "f8")])])
    values["numpy small"] = np.arange(5)
    values["numpy scalar"] = np.float64(2)
    values["masked"] = np.ma.array(numbers, mask=numbers % 2 == 1)
    values["plain"] = {"a": [1, (2, {3}), 2**70, dt.date(2020, 1, 1)], (1, 2): numbers, "c": b"x" * 5000, "d": 1j}
    values["plain large"] = {str(k): (k,) for k in range(n)}
    values["bytes"] = b"x" * 5000
    values["memoryview"] = memoryview(numbers.reshape(40, 50))
    values["series"] = pd.Series(numbers, index=pd.date_range("2020", periods=n, freq="h", tz="Europe/Berlin"))
    values["index"] = pd.MultiIndex.from_product([[1.5, 2.5], range(n // 2)])
    values["range"] = pd.RangeIndex(5)
    values["frame"] = pd.DataFrame(
        {
            "a": numbers,
            "b": numbers / 2,
            "c": numbers + 1,
            "text": pd.Series(text, dtype=object),
            "string": array(text, dtype="string[pyarrow]"),
            "Int64": array(numbers, dtype="Int64"),
            "cat": pd.Categorical(["x", "y"] * (n // 2)),
            "period": pd.period_range("2020", periods=n, freq="h"),
            "interval": pd.interval_range(0, n),
            "arrow": array(numbers, dtype="int64[pyarrow]"),
        }
    )
    values["polars"] = pl.DataFrame(
        {
            "n": numbers,
            "s": text,
            "c": pl.Series(["x", "y"] * (n // 2), dtype=pl.Categorical),
            "o": pl.Series([1] * n, dtype=pl.Object),
        }
    )
    values["polars series"] = pl.Series("s", text)
    values["dtype"] = numbers.dtype
    identity = sparse.eye_array(n, format="csr")
    for form in ("csr", "csc", "coo", "dia", "lil", "dok"):
        values[f"sparse {form}"] = identity.asformat(form)
    values["sparse bsr"] = identity.tobsr((2, 4))
    values["xarray"] = xr.Dataset(
        {"a": (("x", "y"), np.ones((n, 3)), {"unit": "m"}), "s": ("y", np.array(["a", None, "b"], object))},
        coords={"x": pd.date_range("2020", periods=n), "z": ("x", numbers), "y": ["a", "b", "c"]},
    )
    values["xarray levels"] = xr.Dataset(
        coords=xr.Coordinates.from_pandas_multiindex(values["index"].set_names(["p", "q"]), "x")
    )["p"]
    return values


SAMPLES = samples()


def nodes(root: Node) -> list[Node]:
    reached = [root]
    for item in reached:
        reached.extend(item.children)
    return reached


def leaves(value: Any, place: Callable[[Any], None]) -> list[Callable[[Any], None]]:
    """Setters for everything inside a node's params, including the containers."""
    setters = [place]
    if isinstance(value, list):
        for index, item in enumerate(value):
            setters += leaves(item, partial(value.__setitem__, index))
    elif isinstance(value, dict):
        for key, item in list(value.items()):
            setters += leaves(item, partial(value.__setitem__, key))
    return setters


def damage(root: Node, buffers: list[bytes], chance: random.Random) -> None:
    """Apply one random change to the tree or to the buffers' lengths."""
    node = chance.choice(nodes(root))
    kind = chance.randrange(8)
    if kind <= 3:
        chance.choice(leaves(node.params, lambda new: setattr(node, "params", new)))(
            copy.deepcopy(chance.choice(STRANGE))
        )
    elif kind == 4 and node.buffers:
        node.buffers[chance.randrange(len(node.buffers))] = chance.choice([-1, 0, 1, len(buffers), 2**40])
    elif kind == 5 and node.children:
        if chance.random() < 0.5:
            del node.children[chance.randrange(len(node.children))]
        else:
            node.children[chance.randrange(len(node.children))] = copy.deepcopy(chance.choice(nodes(root)))
    elif kind == 6 and buffers:
        index = chance.randrange(len(buffers))
        buffers[index] = buffers[index][: chance.choice([0, 1, 7, len(buffers[index]) // 2, len(buffers[index]) - 1])]
    elif kind == 7:
        other = chance.choice(nodes(root))
        node.codec, node.version = other.codec, chance.choice([1, 1, 1, 99])


def use_sparse(value: Any) -> None:
    """Follow every index, as SciPy does: an index that had not been checked could crash the process."""
    if max(value.shape) <= 1 << 20 and value.ndim == 2 and value.dtype.kind in "fi":
        assert len(value @ np.ones(value.shape[1])) == value.shape[0]
        value.tocsr().tocsc()


@pytest.mark.parametrize("name", SAMPLES)
def test_damage_is_a_typed_error(put: Any, name: str) -> None:
    whole = put(SAMPLES[name])
    chance = random.Random(name)
    caught, messages = 0, set()
    for _ in range(ROUNDS):
        stored = copy.copy(whole)
        stored.buffers = list(whole.buffers)
        root = unpack_tree(whole.tree)
        for _ in range(chance.choice([1, 1, 2])):
            damage(root, stored.buffers, chance)
        stored.tree = pack_tree(root)
        try:
            value = stored.get(chance.choice(["never", "always"]), allow_pickle=False)
        except TYPED as error:
            caught += 1
            messages.add(str(error))
            continue
        if isinstance(value, (pa.Array, pa.ChunkedArray, pa.Table, pa.RecordBatch)):
            value.validate()
        if sparse.issparse(value):
            use_sparse(value)
    assert caught > ROUNDS // 10
    assert all(messages)


@pytest.mark.parametrize("name", SAMPLES)
def test_cut_and_flipped_metadata_is_a_typed_error(put: Any, name: str) -> None:
    whole = put(SAMPLES[name])
    chance = random.Random(name)
    for round_ in range(60):
        stored = copy.copy(whole)
        if round_ % 2:
            stored.tree = whole.tree[: chance.randrange(len(whole.tree))]
        else:
            tree = bytearray(whole.tree)
            tree[chance.randrange(len(tree))] ^= 1 << chance.randrange(8)
            stored.tree = bytes(tree)
        try:
            stored.get(allow_pickle=False)
        except TYPED:
            continue
        assert round_ % 2 == 0, "cut metadata was accepted"


def test_a_short_buffer_names_both_lengths(put: Any) -> None:
    stored, root = tree_of(put, np.arange(1000))
    stored.buffers[0] = stored.buffers[0][:-1]
    expect_corrupt(stored, root, "require 8000 bytes, but it has 7999")
    stored, root = tree_of(put, pa.array(np.arange(1000)))
    stored.buffers[0] = stored.buffers[0][:-1]
    expect_corrupt(stored, root, "7999 bytes, but needs 8000")


def test_objects_are_never_made_from_stored_bytes(put: Any) -> None:
    stored, root = tree_of(put, np.arange(1000))
    root.params[1] = "O"
    expect_corrupt(stored, root, "not an array-protocol string")
    for described in ("|O", {"char": "O", "order": "<"}, {"base": "|O8", "shape": [1]}):
        root.params[1] = described
        expect_corrupt(stored, root, "never stored as bytes|does not describe")


def test_offsets_beyond_the_text_are_noticed(put: Any) -> None:
    text = pa.array([f"text {number}" for number in range(1000)])
    stored, root = tree_of(put, text)
    stored.buffers[1] = stored.buffers[1][:100]
    expect_corrupt(stored, root, "not an Arrow array of type string")


def test_small_arrays_in_the_metadata_are_checked_in_full(put: Any) -> None:
    stored, root = tree_of(put, pa.array(["one", "two", "three"]))
    buffers = root.params[1][3]
    assert isinstance(buffers[1], bytes)
    buffers[1] = np.array([0, 2**30, 6, 11], "i4").tobytes()
    expect_corrupt(stored, root, "not an Arrow array of type string")


def test_codes_outside_of_the_categories_are_noticed(put: Any) -> None:
    for value in (pd.Series(pd.Categorical(["x", "y"] * 1000)), pd.MultiIndex.from_product([["x", "y"], range(1000)])):
        stored, root = tree_of(put, value)
        stored.buffers = [b"\x63" * len(data) for data in stored.buffers]
        expect_corrupt(stored, root, "codes|labels")


def test_a_newer_codec_says_upgrade(put: Any) -> None:
    stored, root = tree_of(put, np.arange(1000))
    root.version = 2
    stored.tree = pack_tree(root)
    with pytest.raises(VersionMismatch, match="upgrade"):
        stored.get()
