"""``Store.build_table(schema, rows=...)``: tables whose columns are written in place."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from forked_child import in_child

ROWS = 200_000
NUMBERS = pa.schema([("n", pa.int64()), ("x", pa.float64())])


@pytest.fixture(autouse=True)
def _nothing_left(store: entrepot.Store, wait_until: Callable[..., None]) -> Iterator[None]:
    """No test leaves leases: what was built is sealed, or went back."""
    yield
    wait_until(lambda: store.status()["leased_bytes"] == 0, "all leases to be returned")


@pytest.mark.parametrize("rows", [0, 3, 1000, ROWS])
def test_columns_are_written_in_place_or_set(store: entrepot.Store, rows: int) -> None:
    schema = pa.schema([("n", pa.int64()), ("text", pa.string()), ("x", pa.float32()), ("lists", pa.list_(pa.int8()))])
    with store.build_table(schema, rows=rows, name="table") as table:
        table.column("n")[:] = np.arange(rows)
        table.set_column("text", [str(i) for i in range(rows)])
        table.column("x")[:] = 0.5
        table.set_column("lists", pa.array([[1, 2]] * rows, pa.list_(pa.int8())))
        assert store.list() == []
    value = store.get_by_name("table")
    assert value.schema == schema
    assert value.to_pydict() == {
        "n": list(range(rows)),
        "text": [str(i) for i in range(rows)],
        "x": [0.5] * rows,
        "lists": [[1, 2]] * rows,
    }
    value.validate(full=True)


def test_what_is_written_in_place_is_not_copied(store: entrepot.Store) -> None:
    with store.build_table(NUMBERS, rows=ROWS) as table:
        n, x = table.column("n"), table.column("x")
        assert table.column("n") is n
        n[:], x[:] = np.arange(ROWS), 1.0
        largest = store.status()["leased_bytes"]
    assert largest < 2 * 8 * ROWS + (64 << 20)
    # The segment is mapped here twice, so addresses differ; but there is only one copy in the store.
    assert store.info(table.id).nbytes == 2 * 8 * ROWS
    assert store.status()["used_bytes"] < 2.2 * 8 * ROWS
    assert (store.get(table.id)["n"].to_numpy() == n).all()


@pytest.mark.parametrize(
    "type_",
    [
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
        pa.timestamp("us", "Europe/Berlin"),
        *(pa.duration(unit) for unit in ("s", "ns")),
    ],
    ids=str,
)
def test_types_with_the_layout_of_a_numpy_type(store: entrepot.Store, type_: Any) -> None:
    with store.build_table(pa.schema([("c", type_), ("v", pa.list_(type_, 3))]), rows=5000) as table:
        column, vectors = table.column("c"), table.column("v")
        assert column.shape == (5000,)
        assert vectors.shape == (5000, 3)
        column.view(f"i{column.itemsize}")[:] = np.arange(5000) % 100
        vectors.view(f"i{column.itemsize}")[:] = np.arange(15_000).reshape(5000, 3) % 100
    value = store.get(table.id)
    expected = pa.array(np.arange(5000) % 100, pa.int64()).cast(pa.int8())
    storage = pa.Array.from_buffers(getattr(pa, f"int{type_.bit_width}")(), 5000, value["c"].chunk(0).buffers())
    assert storage.cast(pa.int8()).equals(expected)
    assert value["v"].chunk(0)[7].as_py() == [value["c"][i % 100].as_py() for i in (21, 22, 23)]


def test_nat_is_null(store: entrepot.Store) -> None:
    schema = pa.schema([("t", pa.timestamp("s")), ("d", pa.duration("ms"))])
    with store.build_table(schema, rows=3000) as table:
        table.column("t")[:] = np.datetime64("2024-01-01")
        table.column("t")[1] = np.datetime64("NaT")
        table.column("d")[:] = np.timedelta64("NaT")
    value = store.get(table.id)
    assert (value["t"].null_count, value["d"].null_count) == (1, 3000)
    assert value["t"][1].as_py() is None
    strict = pa.schema([pa.field("t", pa.timestamp("s"), nullable=False)])
    with pytest.raises(entrepot.InvalidArgument, match="not nullable"), store.build_table(strict, rows=1) as table:
        table.column("t")[:] = np.datetime64("NaT")


@pytest.mark.parametrize(
    "type_",
    [pa.bool_(), pa.date32(), pa.string(), pa.decimal128(5, 1), pa.list_(pa.int8()), pa.list_(pa.bool_(), 2)],
    ids=str,
)
def test_other_types_cannot_be_written_in_place(store: entrepot.Store, type_: Any) -> None:
    table = store.build_table(pa.schema([("c", type_)]), rows=2)
    with pytest.raises(entrepot.InvalidArgument, match=r"column 'c' of type .* cannot be written in place.*set_column"):
        table.column("c")
    table.set_column("c", pa.nulls(2, type_))
    table.seal()
    assert store.get(table.id)["c"].null_count == 2


def test_columns_that_are_not_set_are_named_and_can_be_set_then(store: entrepot.Store) -> None:
    table = store.build_table(NUMBERS, rows=ROWS)
    with pytest.raises(entrepot.InvalidArgument, match="not set: 'n', 'x'"):
        table.seal()
    table.column("n")[:] = 1
    with pytest.raises(entrepot.InvalidArgument, match="not set: 'x'"):
        table.seal()
    table.set_column("x", np.zeros(ROWS))
    table.seal()
    assert store.get(table.id)["x"].null_count == 0
    with pytest.raises(entrepot.InvalidArgument, match="not set"), store.build_table(NUMBERS, rows=1) as missing:
        missing.column("n")[:] = 1
    assert not store.exists(missing.id)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("y", [1], "no column 'y': its columns are"),
        (1, [1], "no column 1"),
        ("n", pa.array([1], pa.int32()), "'n'.*int32.*int64"),
        ("n", ["a"], "'n'.*type list.*int64"),
        ("n", [1, 2], "'n' has 2 values, but the table has 1 rows"),
        ("x", pa.chunked_array([pa.array([0.5]), pa.array([0.5])]), "'x' has 2 values"),
    ],
    ids=["unknown", "number", "type", "values", "rows", "chunked"],
)
def test_wrong_values(store: entrepot.Store, name: Any, values: Any, words: str) -> None:
    table = store.build_table(NUMBERS, rows=1)
    with pytest.raises(entrepot.InvalidArgument, match=words):
        table.set_column(name, values)
    table.set_column("n", [7])
    for call in (lambda: table.set_column("n", [7]), lambda: table.column("n")):
        with pytest.raises(entrepot.InvalidArgument, match="set already"):
            call()
    table.column("x")[:] = 1.5
    with pytest.raises(entrepot.InvalidArgument, match="set already"):
        table.set_column("x", [1.5])
    table.seal()
    assert store.get(table.id).to_pylist() == [{"n": 7, "x": 1.5}]


def test_names_must_differ(store: entrepot.Store) -> None:
    with pytest.raises(entrepot.InvalidArgument, match="different names"):
        store.build_table(pa.schema([("n", pa.int8()), ("n", pa.int8())]), rows=1)


def test_set_columns_are_copied_or_shared(store: entrepot.Store) -> None:
    sealed = store.get(store.put(pa.table({"n": np.arange(ROWS)})))
    mine = np.ones(ROWS)
    with store.build_table(NUMBERS, rows=ROWS) as table:
        table.set_column("n", sealed["n"])
        table.set_column("x", mine)
        mine[:] = 2
        del sealed
    info = store.info(table.id)
    assert (info.referenced_bytes, info.own_bytes) == (8 * ROWS, 8 * ROWS)
    assert store.get(table.id)["x"].to_numpy().sum() == ROWS
    frame = pd.DataFrame({"x": [1.0, np.nan]})
    with store.build_table(pa.schema([("x", pa.float64())]), rows=2) as table:
        table.set_column("x", frame["x"])
    assert store.get(table.id)["x"].null_count == 1


@pytest.mark.parametrize("rows", [100, ROWS], ids=["small", "large"])
def test_nothing_can_change_the_sealed_table(store: entrepot.Store, rows: int) -> None:
    with store.build_table(NUMBERS, rows=rows) as table:
        n, x = table.column("n"), table.column("x")
        view = n[1:]
        n[:], x[:] = 1, 1.0
    with pytest.raises(ValueError, match="read-only"):
        n[0] = 2
    assert view.flags.writeable  # NumPy cannot take that back, so the pages are read-only, too

    def write_anyway() -> None:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        view[500 % rows - 1] = 2

    if rows == ROWS:  # a small table is sealed in its record, and the array is memory of this process
        table_bytes = store.get(table.id)["n"].to_numpy()
        with pytest.raises(AssertionError, match="status 11"):
            in_child(write_anyway)()
        assert (table_bytes == 1).all()
    assert store.get(table.id)["n"].to_numpy().tolist() == [1] * rows


def test_an_exception_gives_everything_back(store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    table = store.build_table(NUMBERS, rows=ROWS)
    n = table.column("n")

    def fail() -> None:
        with table:
            n[:] = 1
            table.set_column("x", np.zeros(ROWS))
            assert store.status()["leased_bytes"] >= 16 * ROWS
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the leases")
    assert store.list() == []
    assert not n.flags.writeable
    for call in (lambda: table.column("n"), lambda: table.set_column("x", np.zeros(ROWS)), table.seal):
        with pytest.raises(entrepot.InvalidArgument, match="sealed or dropped"):
            call()


def test_a_full_store(store: entrepot.Store, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]) -> None:
    store.wait_provisioned()
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 1.0)
    table = store.build_table(NUMBERS, rows=20 << 20)
    table.column("n")[:] = 1
    with pytest.raises(entrepot.StoreFull), table:
        table.column("x")
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the leases")
    assert not store.exists(table.id)


def test_a_killed_process_leaves_nothing(
    store: entrepot.Store, spawn: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    client = spawn(
        """
        import pyarrow as pa
        table = store.build_table(pa.schema([("n", pa.int64()), ("s", pa.string())]), rows=1_000_000)
        table.column("n")[:500_000] = 1
        table.set_column("s", pa.array(["text"] * 1_000_000))
        print("half", flush=True)
        sys.stdin.readline()
        """
    )
    assert client.stdout.readline() == "half\n"
    assert store.status()["leased_bytes"] >= 16_000_000
    client.kill()
    client.wait(30)
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the dead client's leases")
    assert store.list() == []


def test_a_forked_child_has_its_own_copy(store: entrepot.Store) -> None:
    with store.build_table(NUMBERS, rows=ROWS) as table:
        n = table.column("n")
        n[:] = 1

        def child() -> None:
            assert (n == 1).all()
            n[:] = 2
            for call in (lambda: table.column("x"), lambda: table.set_column("x", n), table.seal):
                with pytest.raises(entrepot.NotSealed):
                    call()

        in_child(child)()
        table.column("x")[:] = 1
    assert (store.get(table.id)["n"].to_numpy() == 1).all()
