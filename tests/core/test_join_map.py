"""Join maps: every match that Polars finds, and one build for all processes."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from entrepot import CorruptData, InvalidArgument, Timeout, UnsupportedType, _core
from hypothesis import given, settings
from hypothesis import strategies as st
from spawned_programs import read_line

KEYS: dict[str, Any] = {
    "int64": st.none() | st.integers(-3, 3),
    "double": st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]),
    "string": st.none() | st.sampled_from(["", "a", "b", "x" * 300]),
    "large_binary": st.none() | st.binary(max_size=2),
    "date32": st.none() | st.dates(),
}


@pytest.fixture(scope="module")
def shared(module_daemon: Any) -> Any:
    """A store for the tests that only put and get."""
    with entrepot.connect(module_daemon.address, scope="joins") as connected:
        yield connected


def normal(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def as_text(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str([(name, normal(row[name])) for name in sorted(row)]) for row in rows)


@settings(max_examples=60)
@given(st.data())
def test_it_equals_polars(shared: entrepot.Store, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2))
    names = ["k", "l"][: len(kinds)]

    def drawn(number: str) -> pa.Table:
        count = data.draw(st.integers(0, 12))
        columns = {
            name: pa.array(data.draw(st.lists(KEYS[kind], min_size=count, max_size=count)), kind)
            for name, kind in zip(names, kinds, strict=True)
        }
        return pa.table({**columns, number: np.arange(count)})

    left, right = drawn("left"), drawn("right")
    how: Any = data.draw(st.sampled_from(["inner", "left"]))
    joined = shared.join_map("x", right, names)
    try:
        ours = joined.join(left, how=how)
        frames: list[Any] = [pl.from_arrow(table) for table in (left, right)]
        theirs = frames[0].join(frames[1], on=names, how=how, nulls_equal=False).to_arrow()
        assert as_text(ours.to_pylist()) == as_text(theirs.to_pylist())
        asked, _ = joined.matches(*(left[name] for name in names))
        first = joined.find(*(left[name] for name in names))
        assert set(np.flatnonzero(first >= 0)) == set(asked)
    finally:
        joined.discard()


def test_many_keys(store: entrepot.Store) -> None:
    random = np.random.default_rng(1)
    keys = random.permutation(200_000)
    table = pa.table({"id": pa.array(keys).cast(pa.string()), "row": np.arange(len(keys))})
    customers = store.join_map("x", table, "id")
    asked = random.integers(0, 400_000, 100_000)
    first_rows = customers.find(pa.array(asked).cast(pa.large_string()))
    place = np.full(400_000, -1)
    place[keys] = np.arange(len(keys))
    np.testing.assert_array_equal(first_rows, place[asked])
    assert customers.find([]).shape == (0,)
    heavy = store.join_map("y", pa.table({"k": np.where(np.arange(1000) % 10 == 0, 5, 7)}), "k")
    asked_rows, rows = heavy.matches(np.array([7, 6, 5], np.int32))
    assert (np.bincount(asked_rows) == [900, 0, 100]).all()
    assert (np.diff(rows[:900]) > 0).all(), "in the order of the table"


BUILDER = """
    import pyarrow as pa

    def table():
        print("building", flush=True)
        if sys.argv[1] == "stop":
            sys.stdin.readline()
        return pa.table({"id": range(1000), "v": range(1000)})

    first_rows = store.join_map("x", table, "id", timeout=60).find(range(990, 1010))
    print((first_rows >= 0).sum(), flush=True)
"""


def test_one_process_builds_it(store: entrepot.Store, spawn: Callable[..., subprocess.Popen[str]]) -> None:
    processes = [spawn(BUILDER, "go") for _ in range(2)]
    lines = []
    for process in processes:
        line = read_line(process)
        lines.append(line)
        if line == "building":
            assert read_line(process) == "10"
    assert lines.count("building") == 1, lines
    assert store.join_map("x", timeout=0).table.num_rows == 1000
    assert [each.reading for each in store.locality_sets() if each.name == "join-map"] == ["random"]


def test_another_goes_on_if_the_builder_is_killed(
    store: entrepot.Store, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    process = spawn(BUILDER, "stop")
    assert read_line(process) == "building"
    with pytest.raises(Timeout, match="not built in time"):
        store.join_map("x", pa.table({"id": [1]}), "id", timeout=0.01)
    waiting = spawn(BUILDER, "go")
    process.kill()
    process.wait(60)
    assert read_line(waiting) == "building"
    assert read_line(waiting) == "10"
    assert store.status()["objects"] == 1


def test_errors(store: entrepot.Store) -> None:
    with pytest.raises(Timeout):
        store.join_map("x", timeout=0)
    with pytest.raises(InvalidArgument, match="pass both"):
        store.join_map("x", pa.table({"k": [1]}))
    with pytest.raises(InvalidArgument, match="no column 'z'"):
        store.join_map("x", pa.table({"k": [1]}), "z")
    with pytest.raises(UnsupportedType, match="cannot be a key"):
        store.join_map("x", pa.table({"k": [[1]]}), "k")
    with pytest.raises(KeyError):
        store.join_map("x", lambda: dict[str, Any]()["absent"], "k")
    joined = store.join_map("x", pa.table({"k": [1, 2], "v": [3, 4]}), "k")
    with pytest.raises(InvalidArgument, match="exists with key"):
        store.join_map("x", pa.table({"v": [1]}), "v")
    with pytest.raises(InvalidArgument, match="1 key columns, but got 2"):
        joined.find([1], [2])
    with pytest.raises(InvalidArgument, match="must be of type int64"):
        joined.find(["a"])
    with pytest.raises(InvalidArgument, match="both tables have a column 'v'"):
        joined.join(pa.table({"k": [1], "v": [1]}))
    with pytest.raises(InvalidArgument, match="'inner' or 'left'"):
        joined.join(pa.table({"k": [1]}), how="outer")  # type: ignore[arg-type]


def test_damaged_indexes_are_detected() -> None:
    column: Any = (np.arange(100, dtype=np.int64), 8, None, 0, None)
    index = bytearray(_core.join_index_bytes([column]))
    _core.build_join_index(index, [column])
    for damaged in (index[:63], index[:-1], bytes(len(index))):
        with pytest.raises(CorruptData):
            _core.join_first(damaged, [column])
    refused = 0
    for at in range(64, len(index) - 800, 4):  # heads, chains and hashes
        damaged = bytearray(index)
        damaged[at : at + 4] = b"\xff" * 4
        try:
            _core.join_matches(damaged, [column])
        except CorruptData:
            refused += 1
    assert refused > 100
