"""Reported sizes are those of the values, even of a small value that is stored in metadata and has no buffer."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any

import entrepot
import msgpack
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entrepot import inventory, raw_objects
from entrepot._tree import inlined_bytes
from entrepot.cli import main
from entrepot.codec import Node, encode_value, pack_tree, unpack_tree
from entrepot.errors import CorruptData, VersionMismatch

SMALL: list[tuple[Any, int, int]] = [  # value, its minimum and maximum size
    (b"x" * 100, 100, 100),
    (b"x" * 4096, 4096, 4096),
    (bytearray(300), 300, 300),
    (memoryview(bytes(300)), 300, 300),
    ("x" * 1000, 1000, 1003),
    (7, 1, 1),
    ({"a": [1, 2.5, "three"], "when": dt.date(2026, 1, 2), "id": uuid.UUID(int=1)}, 40, 80),
    (np.arange(10), 80, 80),
    (np.float64(1.5), 8, 8),
    (np.str_("abc"), 3, 3),
    ([np.arange(10), b"y" * 50], 130, 260),
    (pa.table({"a": [1, 2, 3]}), 24, 64),
    (pd.DataFrame({"a": np.arange(5), "b": np.arange(5.0)}), 80, 400),
    (pl.DataFrame({"a": [1, 2, 3]}), 24, 200),
    (ValueError("pickled"), 20, 200),
]
KINDS = [f"{type(value).__module__}.{type(value).__name__}-{low}" for value, low, _ in SMALL]


@pytest.mark.parametrize(("value", "low", "high"), SMALL, ids=KINDS)
def test_of_a_small_value(store: entrepot.Store, value: Any, low: int, high: int) -> None:
    receipt = store.put_versioned(value, name="small")
    assert low <= receipt.nbytes <= high
    (listed,) = store.list()
    (listing,) = inventory.everything(store)
    kind = inventory.kind_of(store, receipt.id)
    assert kind is not None
    sizes = {
        listed.nbytes,
        store.info(receipt.id).nbytes,
        raw_objects.size_of(store, receipt.id),
        listing.nbytes + kind.nbytes,
    }
    assert sizes == {receipt.nbytes} == {raw_objects.read(store, receipt.id).nbytes}


def test_of_large_and_mixed_values(store: entrepot.Store) -> None:
    assert store.put_versioned(np.arange(10_000)).nbytes == 80_000
    assert store.put_versioned([np.arange(10_000), b"x" * 100, np.arange(10)]).nbytes - 80_180 in range(200)
    nested = [[np.arange(3)]]
    assert store.put_versioned([nested, np.arange(1000)]).nbytes < 8000 + 200, "nothing is counted twice"


def test_a_value_that_is_pickled_after_all_counts_once(store: entrepot.Store) -> None:
    value = {"first": np.arange(20), "then": SystemError("pickle keeps this")}
    assert store.put_versioned(value).nbytes < 160 + 500


def test_on_the_command_line(daemon: Any, store: entrepot.Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.put(pa.table({"a": [1, 2, 3]}), name="table")
    store.put(b"x" * 1234, name="bytes")
    options = ["--address", daemon.address, "--scope", "tests"]
    assert main(["ls", *options]) == 0
    output = capsys.readouterr().out
    assert "24 B" in output
    assert "1.2 KiB" in output
    assert main(["info", "bytes", "--json", *options]) == 0
    assert json.loads(capsys.readouterr().out)["nbytes"] == 1234


def test_of_a_collection_of_small_members(store: entrepot.Store) -> None:
    builder = store.collection("small")
    for number in range(3):
        builder.put(np.arange(number + 1), index=number)
    collection = builder.seal()
    assert collection.sizes == [8, 16, 24]
    assert collection.nbytes == 48
    assert [len(item) for item in collection] == [1, 2, 3]
    assert [item.nbytes for item in store.list() if item.member_of] == [8, 16, 24]


def test_a_collection_that_counted_buffers_alone_is_still_read(store: entrepot.Store) -> None:
    from entrepot import raw_collections

    builder = store.collection("old")
    builder.put(np.arange(3), index=0)
    builder.seal()
    raw_object = raw_objects.read(store, store.resolve("old"))
    contents = raw_collections.contents_in(raw_object.tree, raw_object.buffers)
    raw_collections.put_collection(store, raw_object.id, contents, [0], name="old", replace=True)
    assert list(store.get_by_name("old")[0]) == [0, 1, 2]


def test_trees_of_format_1_are_read(store: entrepot.Store) -> None:
    root = unpack_tree(encode_value(np.arange(10))[0])
    old = pack_tree(root)
    assert msgpack.unpackb(old)[0] == 1
    (receipt,) = raw_objects.put_small(store, [raw_objects.SmallObject(entrepot.ObjectID.random(), old, [])])
    assert list(store.get(receipt.id)) == list(range(10))
    assert inlined_bytes(old) == 0
    assert inlined_bytes(pack_tree(Node("python.bytes", 1, b"x" * 300))) == 300, "its length is there all the same"


@pytest.mark.parametrize("size", [1, 127, 128, 255, 256, 65_535, 65_536, 1 << 32])
def test_the_number_is_read_from_the_first_bytes(size: int) -> None:
    tree = pack_tree(Node("python.data", 1, [0, b"\xc0" * 70_000]), size)
    assert inlined_bytes(tree) == min(size, len(tree))
    assert inlined_bytes(tree[:20]) <= 20
    assert unpack_tree(tree).codec == "python.data"


@pytest.mark.parametrize("cut", range(2, 8))
def test_a_damaged_number_is_not_believed(cut: int) -> None:
    assert inlined_bytes(pack_tree(Node("a", 1), 1 << 40)[:cut]) <= cut


def test_newer_and_damaged_formats_are_refused() -> None:
    with pytest.raises(VersionMismatch, match="format 3"):
        unpack_tree(msgpack.packb([3, 0, []]))
    for damaged in ([], [1], [2, 7], [1, 5, ["a", 1, None, [], []]], ["2", 1, []]):
        with pytest.raises(CorruptData):
            unpack_tree(msgpack.packb(damaged))
