"""Hash aggregation: the result equals Polars' for all keys and values, however rows are divided and pages spilled."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from entrepot import InvalidArgument, ObjectExists, ObjectNotFound, StreamFailed, Timeout, UnsupportedType
from hypothesis import given, settings
from hypothesis import strategies as st
from spawned_programs import read_line

pc: Any = import_module("pyarrow.compute")  # whose functions are made at run time
KEYS: dict[str, Any] = {
    "int64": st.none() | st.integers(-3, 3),
    "uint8": st.integers(0, 255),
    "double": st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]),
    "string": st.none() | st.sampled_from(["", "a", "b", "x" * 3000]) | st.text(max_size=3),
    "large_binary": st.none() | st.binary(max_size=2),
    "bool": st.none() | st.booleans(),
    "date32": st.none() | st.dates(),
    "string_view": st.none() | st.text(max_size=15),
}
VALUES: dict[str, Any] = {
    "int64": st.none() | st.integers(-(2**40), 2**40),
    "int8": st.integers(-128, 127),
    "uint64": st.none() | st.integers(0, 2**40),
    "double": st.none() | st.integers(-1000, 1000).map(lambda n: n / 4) | st.just(math.nan),
    "bool": st.none() | st.booleans(),
}
ALL: dict[str, Any] = {
    "rows": "count",
    "n": ("v", "count"),
    "total": ("v", "sum"),
    "least": ("v", "min"),
    "most": ("v", "max"),
    "average": ("v", "mean"),
}


@pytest.fixture(scope="module")
def shared(module_daemon: Any) -> Any:
    """A store for the tests that only put and get."""
    with entrepot.connect(module_daemon.address, scope="aggregates") as connected:
        yield connected


def normal(value: Any) -> Any:
    """A value as keys are compared: NaN equals NaN, -0.0 is 0.0."""
    if isinstance(value, bool):
        return int(value)
    return ("nan" if math.isnan(value) else value + 0.0) if isinstance(value, float) else value


def rows_of(table: pa.Table, keys: list[str]) -> dict[Any, dict[str, Any]]:
    rows = {}
    for row in table.to_pylist():
        key = tuple(normal(row[name]) for name in keys)
        assert key not in rows, "a key is in two rows"
        rows[key] = {name: normal(value) for name, value in row.items() if name not in keys}
    return rows


def by_polars(table: pa.Table, keys: list[str]) -> dict[Any, dict[str, Any]]:
    v = pl.col("v")
    aggregates = [pl.len().alias("rows"), v.count().alias("n"), v.sum().alias("total"), v.min().alias("least")]
    frame = pl.DataFrame(pl.from_arrow(table)).group_by(keys)
    return rows_of(frame.agg(*aggregates, v.max().alias("most"), v.mean().alias("average")).to_arrow(), keys)


def assert_equal(ours: dict[Any, dict[str, Any]], theirs: dict[Any, dict[str, Any]]) -> None:
    assert ours.keys() == theirs.keys()
    for key, row in theirs.items():
        for name, value in row.items():
            got = ours[key][name]
            assert got == value or got == pytest.approx(value), (key, name)


@settings(max_examples=60)
@given(st.data())
def test_it_equals_polars(shared: entrepot.Store, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 40))
    names = ["k", "l"][: data.draw(st.integers(1, 2))]
    columns: dict[str, Any] = {}
    for name in names:
        kind = data.draw(st.sampled_from(sorted(KEYS)))
        columns[name] = pa.array(data.draw(st.lists(KEYS[kind], min_size=count, max_size=count)), kind)
    kind = data.draw(st.sampled_from(sorted(VALUES)))
    columns["v"] = pa.array(data.draw(st.lists(VALUES[kind], min_size=count, max_size=count)), kind)
    table = pa.table(columns)
    aggregation = shared.hash_aggregate("x", names, ALL, partitions=data.draw(st.integers(1, 4)))
    try:
        step = data.draw(st.integers(1, 41))
        with aggregation.writer() as writer:
            writer.append(table.slice(0, 0))
            for first in range(0, count, step):
                writer.append(table.slice(first, step))
        result = aggregation.to_arrow()
        assert result.schema.names == [*names, *ALL]
        assert_equal(rows_of(result, names), by_polars(table, names))
        assert result.num_rows or result.schema.field("total").type in (pa.int64(), pa.uint64(), pa.float64())
    finally:
        aggregation.discard()


@pytest.mark.parametrize("kind", ["int64", "large_string"])
def test_pages_are_split(store: entrepot.Store, kind: str) -> None:
    """Many keys, each several times, and one in half of the rows."""
    random = np.random.default_rng(1)
    keys = random.permutation(np.arange(400_000) % 130_000)
    keys[random.random(len(keys)) < 0.5] = 7
    table = pa.table({"k": pa.array(keys).cast(kind), "v": pa.array(random.integers(-100, 100, len(keys)))})
    aggregation = store.hash_aggregate("x", "k", ALL, partitions=3, page_bytes="64KiB")
    with aggregation.writer() as writer:
        for first in range(0, len(keys), 50_000):
            writer.append(table.slice(first, 50_000))
        assert writer.spilled_pages == 0
    assert_equal(rows_of(aggregation.to_arrow(), ["k"]), by_polars(table, ["k"]))
    aggregation.discard()
    assert store.status()["objects"] == 0


def test_more_groups_than_memory(tmp_path: Path, new_daemon: Callable[..., Any]) -> None:
    """Groups of 1.5 times the memory, each written twice, and one key in 90 % of the rows."""
    daemon = new_daemon("32MiB", "--spill-path", str(tmp_path / "spill"), "--spill-quota", "1GiB")
    groups, times = 480_000, 2
    with entrepot.connect(daemon.address, scope="tests") as store:
        aggregation = store.hash_aggregate("x", "k", {"n": "count", "total": ("v", "sum")}, page_bytes="64KiB")
        with aggregation.writer() as writer:
            for time in range(times):
                for first in range(0, groups, 20_000):
                    numbers = np.arange(first, first + 20_000)
                    keys = pc.binary_join_element_wise("customer", pa.array(numbers).cast(pa.string()), " ")
                    long = pa.array(["customer of the year"]).take(pa.array(np.zeros(180_000, np.int64)))
                    values = pa.array(np.concatenate([numbers + time, np.ones(180_000, np.int64)]))
                    writer.append(pa.table({"k": pa.concat_arrays([keys, long]), "v": values}))
            assert writer.spilled_pages > 100
        assert sum(info.nbytes for info in store.list()) > 1.5 * (32 << 20)
        rows = 0
        for table in aggregation.tables():
            rows += table.num_rows
            for key, n, total in zip(*table.to_pydict().values(), strict=True):
                if key == "customer of the year":
                    assert n == total == groups * times * 9
                else:
                    assert (n, total) == (times, 2 * int(key.split()[1]) + 1)
        assert rows == groups + 1
        aggregation.discard()
        assert store.status()["objects"] == 0


def test_keys_longer_than_a_page(store: entrepot.Store) -> None:
    keys = ["a" * 200_000, "b" * 200_000, "short", "a" * 200_000, None, ""]
    table = pa.table({"k": keys, "v": [1, 2, 3, 4, 5, 6]})
    aggregation = store.hash_aggregate("x", "k", {"total": ("v", "sum")}, partitions=2, page_bytes="64KiB")
    with aggregation.writer() as writer:
        writer.append(table)
        writer.append(table)
    result = dict(zip(*aggregation.to_arrow().to_pydict().values(), strict=True))
    assert result == {keys[0]: 10, keys[1]: 4, "short": 6, None: 10, "": 12}


def test_times_categories_and_floats(store: entrepot.Store) -> None:
    stamps = pa.array([3, None, 1, 2], pa.timestamp("us", "UTC"))
    days = pa.array([3, 4, 1, None], pa.date32())
    table = pa.table(
        {
            "k": pa.array(["a", "b", "a", "b"]).dictionary_encode(),
            "t": stamps,
            "d": days,
            "f": pa.array([1.5, math.nan, 2.5, 1.0], pa.float32()),
            "c": pa.array([5, 6, 7, None]).dictionary_encode(),
        }
    )
    aggregates: dict[str, Any] = {
        "first": ("t", "min"),
        "last": ("d", "max"),
        "least": ("f", "min"),
        "total": ("c", "sum"),
        "known": ("t", "count"),
    }
    aggregation = store.hash_aggregate("x", "k", aggregates)
    with aggregation.writer() as writer:
        writer.append(table)
    result = aggregation.to_arrow().sort_by("k")
    assert [result.schema.field(name).type for name in ("k", "first", "last", "least")] == [
        pa.string(), stamps.type, days.type, pa.float32()
    ]  # fmt: skip
    assert result["first"].cast(pa.int64()).to_pylist() == [1, 2]
    assert result["last"].cast(pa.int32()).to_pylist() == [3, 4]
    assert result["least"].to_pylist() == [1.5, 1.0]  # NaN counts only if there is nothing else
    assert result["total"].to_pylist() == [12, 6]
    assert result["known"].to_pylist() == [2, 1]


def test_sums_beyond_64_bits_are_refused(store: entrepot.Store) -> None:
    aggregation = store.hash_aggregate("x", "k", {"total": ("v", "sum"), "average": ("v", "mean")})
    with aggregation.writer() as writer:
        writer.append(pa.table({"k": [1, 1, 2], "v": [2**62, 2**62, 5]}))
    with pytest.raises(InvalidArgument, match="aggregate 'total': cast column 'v'"):
        aggregation.to_arrow()
    aggregation.discard()
    # What exceeds them in between does not matter.
    aggregation = store.hash_aggregate("x", "k", {"total": ("v", "sum")})
    with aggregation.writer() as writer:
        writer.append(pa.table({"k": [1, 1, 1, 1], "v": [2**62, 2**62, 2**62, -(2**63)]}))
    assert aggregation.to_arrow()["total"].to_pylist() == [2**62]


@pytest.mark.parametrize(
    ("by", "aggregates", "message"),
    [
        ([], {"n": "count"}, "at least one|name one key column"),
        ("k", {"k": "count"}, "several columns 'k'"),
        ("k", {"n": ("v", "median")}, "one of count, sum"),
        ("k", {"n": "sum"}, "needs a column"),
        ("k", None, "pass both"),
    ],
)
def test_malformed_plans(store: entrepot.Store, by: Any, aggregates: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        store.hash_aggregate("x", by, aggregates)


def test_wrong_rows_leave_the_writer_usable(store: entrepot.Store) -> None:
    aggregation = store.hash_aggregate("x", "k", {"n": "count", "total": ("v", "sum")})
    with aggregation.writer() as writer:
        with pytest.raises(InvalidArgument, match="no column 'v'"):
            writer.append(pa.table({"k": [1]}))
        with pytest.raises(UnsupportedType, match="the sum of a column of type string"):
            writer.append(pa.table({"k": [1], "v": ["a"]}))
        with pytest.raises(UnsupportedType, match="cannot be a key"):
            writer.append(pa.table({"k": [[1]], "v": [1]}))
        with pytest.raises(UnsupportedType, match="rows must be"):
            writer.append([1])
        writer.append(pa.table({"k": [1, 1], "v": [1, 2], "ignored": ["a", "b"]}))
        with pytest.raises(InvalidArgument, match="the same columns"):
            writer.append(pa.table({"k": [1], "v": [1.5]}))
    assert aggregation.to_arrow().to_pylist() == [{"k": 1, "n": 2, "total": 3}]
    with pytest.raises(InvalidArgument, match="closed"):
        writer.append(pa.table({"k": [1], "v": [1]}))
    with pytest.raises(InvalidArgument, match="partition 32 does not exist"):
        aggregation.read(32)
    with pytest.raises(ObjectExists, match="sealed"):
        aggregation.writer()


def test_others_find_it(store: entrepot.Store) -> None:
    for partitions in (None, 4):
        with pytest.raises(ObjectNotFound, match="keys and aggregates"):
            store.hash_aggregate("x", partitions=partitions)
    store.hash_aggregate("x", "k", {"n": "count"}, writers=2)
    with pytest.raises(InvalidArgument, match="exists with plan"):
        store.hash_aggregate("x", "other", {"n": "count"})
    with pytest.raises(ObjectExists, match="taken by another service"):
        store.shuffle("x", 32)
    again = store.hash_aggregate("x")
    assert (again.by, again.partitions, again.writers) == (["k"], 32, 2)
    with pytest.raises(Timeout, match="2 of the 2 writers of aggregation 'x'"):
        again.to_arrow(timeout=0)
    for _ in range(2):
        again.writer().close()
    with pytest.raises(InvalidArgument, match="no rows were written"):
        again.to_arrow()


WRITER = """
    import pyarrow as pa
    aggregation = store.hash_aggregate("x")
    with aggregation.writer() as writer:
        for number in range(10):
            writer.append(pa.table({"k": range(number * 5000, (number + 2) * 5000), "v": range(10_000)}))
        if sys.argv[1] == "stop":
            print("here", flush=True)
            sys.stdin.readline()
    print("closed", flush=True)
"""


def test_writers_in_processes(store: entrepot.Store, spawn: Callable[..., subprocess.Popen[str]]) -> None:
    aggregation = store.hash_aggregate("x", "k", ALL, writers=2, page_bytes="64KiB")
    for process in [spawn(WRITER, "none") for _ in range(2)]:
        assert read_line(process) == "closed"
    result = aggregation.to_arrow(timeout=60)
    assert result.num_rows == 55_000
    assert sum(result["rows"].to_pylist()) == 200_000


def test_a_writer_that_is_killed_fails_it(
    store: entrepot.Store, spawn: Callable[..., subprocess.Popen[str]], wait_until: Callable[..., None]
) -> None:
    aggregation = store.hash_aggregate("x", "k", ALL, writers=2, page_bytes="64KiB")
    with aggregation.writer() as writer:
        writer.append(pa.table({"k": range(50_000), "v": range(50_000)}))
    process = spawn(WRITER, "stop")
    assert read_line(process) == "here"
    process.kill()
    process.wait(60)
    with pytest.raises(StreamFailed, match="aggregation 'x' has failed"):
        aggregation.to_arrow(timeout=60)
    aggregation.discard()
    assert store.status()["objects"] == 0
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the dead writer's tables to be given back")
    again = store.hash_aggregate("x", "k", {"n": "count"})
    with again.writer() as writer:
        writer.append(pa.table({"k": [1, 2, 1]}))
    assert sorted(again.to_arrow()["n"].to_pylist()) == [1, 2]


def test_an_exception_gives_everything_up(store: entrepot.Store) -> None:
    aggregation = store.hash_aggregate("x", "k", {"n": "count"})
    writer = aggregation.writer()
    writer.append(pa.table({"k": range(10_000)}))
    with pytest.raises(KeyError, match="mine"), writer:
        raise KeyError("mine")
    with pytest.raises(StreamFailed, match="mine"):
        aggregation.to_arrow(timeout=60)
    aggregation.discard()
    assert store.status()["objects"] == 0
