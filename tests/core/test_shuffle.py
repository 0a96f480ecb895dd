"""Shuffles: every row reaches the partition of its key exactly once, whoever writes it and however."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pytest
from entrepot import (
    InvalidArgument,
    NotSealed,
    ObjectExists,
    ObjectNotFound,
    StreamFailed,
    Timeout,
    UnsupportedType,
)
from hypothesis import given, settings
from hypothesis import strategies as st

pc: Any = import_module("pyarrow.compute")  # whose functions are made at run time
KEYS: dict[str, Any] = {
    "int64": st.lists(st.none() | st.integers(-(2**40), 2**40)),
    "int8": st.lists(st.integers(-128, 127)),
    "double": st.lists(st.none() | st.floats(width=64)),
    "float": st.lists(st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    "string": st.lists(st.none() | st.text(max_size=5)),
    "large_binary": st.lists(st.none() | st.binary(max_size=5)),
    "bool": st.lists(st.none() | st.booleans()),
    "string_view": st.lists(st.none() | st.text(max_size=20)),
    "date32": st.lists(st.none() | st.dates()),
}


def rows_by_partition(shuffle: entrepot.Shuffle) -> list[list[dict[str, Any]]]:
    return [
        [row for batch in shuffle.read(partition) for row in batch.to_pylist()]
        for partition in range(shuffle.partitions)
    ]


def normal(value: Any) -> Any:
    """A value as keys are compared: NaN equals NaN, -0.0 is 0.0."""
    return ("nan" if math.isnan(value) else value + 0.0) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def shared(module_daemon: Any) -> Any:
    """A store for the tests that only put and get."""
    with entrepot.connect(module_daemon.address, scope="shuffles") as connected:
        yield connected


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(KEYS)).flatmap(lambda kind: st.tuples(st.just(kind), KEYS[kind])),
    st.integers(1, 5),
    st.integers(1, 7),
)
def test_equal_keys_meet_in_one_partition(
    shared: entrepot.Store, column: tuple[str, list[Any]], partitions: int, rows_at_once: int
) -> None:
    kind, values = column
    table = pa.table({"k": pa.array(values, kind), "n": np.arange(len(values))})
    shuffle = shared.shuffle("keys", partitions)
    try:
        with shuffle.writer() as writer:
            for first in range(0, len(values), rows_at_once):
                writer.append(table.slice(first, rows_at_once), by="k")
        received = rows_by_partition(shuffle)
        assert sorted(row["n"] for part in received for row in part) == list(range(len(values)))
        keys = table["k"].to_pylist()
        homes: dict[Any, int] = {}
        for partition, part in enumerate(received):
            for row in part:
                assert normal(row["k"]) == normal(keys[row["n"]])
                assert homes.setdefault(normal(row["k"]), partition) == partition
        assert shuffle.counts() == [len(part) for part in received]
    finally:
        shuffle.discard()
    assert shared.status()["objects"] == 0


def test_several_key_columns_and_dictionaries_that_differ(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 8)
    with shuffle.writer() as writer:
        for first in ("abc", "bcd", "xya"):
            column = pa.array(list(first) * 10).dictionary_encode()
            writer.append(pa.table({"a": column, "b": [1, 2, 3] * 10}), by=["a", "b"])
    homes: dict[Any, int] = {}
    for partition, part in enumerate(rows_by_partition(shuffle)):
        for row in part:
            assert homes.setdefault((row["a"], row["b"]), partition) == partition
    assert sum(shuffle.counts()) == 90
    assert len(set(homes.values())) > 1


def test_rows_are_views_of_pages_that_are_members_of_a_collection(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 4)
    with shuffle.writer() as writer:
        writer.append(pa.table({"k": np.arange(400_000) % 1000, "v": np.arange(400_000.0)}), by="k")
    shuffle.seal()
    pages = store.get_by_name("x")
    assert isinstance(pages, entrepot.Collection)
    assert len(pages) == sum(len(list(shuffle.pages(partition))) for partition in range(4))
    table = shuffle.to_arrow(2)
    column = table["v"].chunk(0)
    page = next(iter(shuffle.pages(2)))
    start = np.frombuffer(page.view, np.uint8).ctypes.data
    assert start <= column.buffers()[1].address < start + page.nbytes
    del column, page
    total = pc.sum(table["k"]).as_py()
    shuffle.discard()
    assert store.status()["objects"] == 0
    assert pc.sum(table["k"]).as_py() == total  # readers keep what they hold
    names = {each.name for each in store.locality_sets()}
    assert {"shuffle:0", "shuffle:3"} <= names


def test_records_of_any_length(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 3, records=True, page_bytes="64KiB")
    records = [os.urandom(number % 40) for number in range(20_000)] + [b"z" * 1_000_000]
    numbers = np.arange(len(records)) % 3
    with shuffle.writer() as writer:
        writer.append_records(records[:10], numbers[:10])
        writer.append_records(pa.array(records[10:], pa.binary()), numbers[10:])
    for partition in range(3):
        received = [bytes(value) for array in shuffle.records(partition) for value in array.to_pylist()]
        assert sorted(received) == sorted(
            record for record, number in zip(records, numbers, strict=True) if number == partition
        )
    assert shuffle.counts() == [6667, 6667, 6667]


def test_records_of_one_length(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 2, record_bytes=24)
    rows = np.arange(30_000.0).reshape(10_000, 3)
    with shuffle.writer() as writer:
        writer.append_records(rows, np.arange(10_000) % 2)
        with pytest.raises(InvalidArgument, match="16 bytes"):
            writer.append_records(rows[:, :2], np.zeros(10_000, int))
    received = np.concatenate(list(shuffle.arrays(1, np.dtype("3f8"))))
    np.testing.assert_array_equal(received, rows[1::2])
    assert not next(iter(shuffle.arrays(0, "S24"))).flags.writeable
    assert len(next(iter(shuffle.records(0)))) == 5_000
    with pytest.raises(InvalidArgument, match="24 bytes each"):
        next(iter(shuffle.arrays(0, "f8")))


def test_one_key_in_nine_of_ten_rows(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 16, page_bytes="64KiB")
    keys = np.where(np.arange(200_000) % 10 < 9, 7, np.arange(200_000))
    with shuffle.writer() as writer:
        for first in range(0, len(keys), 10_000):
            writer.append(pa.table({"k": keys[first : first + 10_000]}), by="k")
    assert sum(shuffle.counts()) == 200_000
    assert max(shuffle.counts()) >= 180_000


def test_without_rows(store: entrepot.Store) -> None:
    for number, tables in enumerate(([], [pa.table({"k": pa.array([], pa.int64())})])):
        shuffle = store.shuffle(f"x{number}", 3)
        with shuffle.writer() as writer:
            for table in tables:
                writer.append(table, by="k")
        assert shuffle.counts() == [0, 0, 0]
        assert list(shuffle.read(1)) == []
        if tables:
            assert shuffle.to_arrow(1).column_names == ["k"]
        else:
            with pytest.raises(InvalidArgument, match="no rows were written"):
                shuffle.to_arrow(1)


def test_threads_of_one_writer(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 4)
    with shuffle.writer() as writer:

        def write(first: int) -> None:
            for start in range(first, first + 20_000, 2_000):
                writer.append(pa.table({"n": np.arange(start, start + 2_000)}), by="n")

        threads = [threading.Thread(target=write, args=(20_000 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    received = np.concatenate([shuffle.to_arrow(partition)["n"].to_numpy() for partition in range(4)])
    np.testing.assert_array_equal(np.sort(received), np.arange(80_000))


def test_wrong_partitions_leave_nothing(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 2)
    table = pa.table({"k": [1, 2, 3]})
    with shuffle.writer() as writer:
        for numbers, message in (
            ([0, 2, 1], "row 1 is for partition 2"),
            ([0, -1, 1], "row 1 is for partition -1"),
            ([0, 1], "3 rows, but 2"),
            ([0.0, 1.0, 1.0], "must be integers"),
        ):
            with pytest.raises(InvalidArgument, match=message):
                writer.append(table, partitions=numbers)
        with pytest.raises(InvalidArgument, match="no column 'z'"):
            writer.append(table, by="z")
        with pytest.raises(InvalidArgument, match="pass either"):
            writer.append(table)
        with pytest.raises(InvalidArgument, match="one of tables"):
            writer.append_records([b"x"], [0])
        with pytest.raises(UnsupportedType, match="rows must be"):
            writer.append([1, 2], by="k")
        with pytest.raises(UnsupportedType, match="cannot be a key"):
            writer.append(pa.table({"k": [[1], [2]]}), by="k")
    assert shuffle.counts() == [0, 0]
    with pytest.raises(InvalidArgument, match="partition 2 does not exist"):
        next(shuffle.read(2))


def test_columns_that_differ(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 2, writers=2)
    with shuffle.writer() as writer:
        writer.append(pa.table({"k": [1]}), by="k")
        with pytest.raises(InvalidArgument, match="the same columns"):
            writer.append(pa.table({"k": ["a"]}), by="k")
    with shuffle.writer() as writer:
        writer.append(pa.table({"k": ["a"]}), by="k")
    with pytest.raises(InvalidArgument, match="different columns"):
        shuffle.seal()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"partitions": 0}, "at least 1"),
        ({"partitions": 65_537}, "65536"),
        ({"partitions": 2, "writers": 0}, "at least 1"),
        ({"partitions": 2, "page_bytes": 1000}, "at least 65536"),
        ({"partitions": 2, "page_bytes": "2GiB"}, "1073741824"),
        ({"partitions": 2, "record_bytes": -1}, "integer from 0"),
    ],
)
def test_malformed_arguments(store: entrepot.Store, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        store.shuffle("x", **arguments)


def test_two_shuffles_of_one_name(store: entrepot.Store) -> None:
    with pytest.raises(ObjectNotFound, match="no shuffle 'x'"):
        store.shuffle("x")
    shuffle = store.shuffle("x", 2)
    with pytest.raises(InvalidArgument, match="partitions=2, not 3"):
        store.shuffle("x", 3)
    with pytest.raises(InvalidArgument, match="framing"):
        store.shuffle("x", records=True)
    assert store.shuffle("x").partitions == 2
    with shuffle.writer() as writer:
        with pytest.raises(InvalidArgument):
            shuffle.writer()  # of one that is being written
        writer.append(pa.table({"k": [1]}), by="k")
    shuffle.seal()
    with pytest.raises(ObjectExists, match="sealed"):
        shuffle.writer()
    shuffle.discard()
    again = store.shuffle("x", 3)
    with again.writer() as writer:
        writer.append(pa.table({"other": [1, 2]}), by="other")
    assert sum(again.counts()) == 2


def test_seal_waits_for_the_writers(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 2, writers=2)
    with pytest.raises(Timeout, match="2 of the 2 writers"):
        shuffle.seal(timeout=0)
    with shuffle.writer() as writer:
        writer.append(pa.table({"k": [1]}), by="k")
    with pytest.raises(Timeout, match="1 of the 2 writers"):
        shuffle.seal(timeout=0.1)
    received: list[int] = []
    thread = threading.Thread(target=lambda: received.extend(store.shuffle("x").counts(timeout=60)))
    thread.start()
    with shuffle.writer() as writer:
        writer.append(pa.table({"k": [2]}), by="k")
    thread.join(60)
    assert sum(received) == 2
    assert shuffle.seal(timeout=0).id == shuffle.id


def test_an_exception_in_the_block_fails_the_shuffle(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 2)
    writer = shuffle.writer()

    def write() -> None:
        with writer:
            writer.append(pa.table({"k": np.arange(200_000)}), by="k")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        write()
    assert writer.closed
    with pytest.raises(InvalidArgument, match="closed"):
        writer.append(pa.table({"k": [1]}), by="k")
    with pytest.raises(StreamFailed, match="has failed"):
        shuffle.seal(timeout=60)
    shuffle.discard()
    assert store.status()["objects"] == 0


def test_a_forked_child_opens_its_own_writer(store: entrepot.Store) -> None:
    shuffle = store.shuffle("x", 2, writers=2)
    writer = shuffle.writer()
    writer.append(pa.table({"k": np.arange(100)}), by="k")
    child = os.fork()
    if not child:
        status = 1
        try:
            with pytest.raises((InvalidArgument, NotSealed)):
                writer.append(pa.table({"k": [1]}), by="k")
            with shuffle.writer() as own:
                own.append(pa.table({"k": np.arange(100)}), by="k")
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    writer.close()
    assert sum(shuffle.counts(timeout=60)) == 200


@pytest.fixture
def start_store(start_daemon: Callable[..., Any], tmp_path: Path) -> Iterator[Callable[[str], entrepot.Store]]:
    """``start_store(size)``: a connection to a store of this size, which spills."""
    with ExitStack() as stack:
        yield lambda size: stack.enter_context(
            entrepot.connect(start_daemon(size, "--spill-path", str(tmp_path)).address, scope="tests")
        )


def test_more_than_the_memory(start_store: Callable[..., Any]) -> None:
    store = start_store("64MiB")
    shuffle = store.shuffle("x", 8)
    block = np.arange(1 << 19, dtype=np.int64)  # 4 MiB
    with shuffle.writer() as writer:
        for number in range(40):
            writer.append(pa.table({"n": block + number * len(block)}), by="n")
    total = 0
    for partition in range(8):
        for batch in shuffle.read(partition):
            total += int(batch.column("n").to_numpy().sum())
    rows = 40 * len(block)
    assert total == rows * (rows - 1) // 2
    assert sum(shuffle.counts()) == rows


@pytest.mark.exhaustive
def test_a_record_and_text_of_more_than_2_gib(start_store: Callable[..., Any]) -> None:
    store = start_store("7GiB")
    long = pa.array([b"x" * ((1 << 31) + 5), b"y"], pa.large_binary())
    shuffle = store.shuffle("records", 1, records=True)
    with shuffle.writer() as writer:
        writer.append_records(long, [0, 0])
    received = list(shuffle.records(0))
    assert sum(pc.sum(pc.binary_length(array.cast(pa.large_binary()))).as_py() for array in received) == (1 << 31) + 6
    del received
    shuffle.discard()
    tables = store.shuffle("tables", 1)
    with tables.writer() as writer:
        writer.append(pa.table({"text": long}), partitions=[0, 0])
    assert pc.sum(pc.binary_length(tables.to_arrow(0)["text"])).as_py() == (1 << 31) + 6
