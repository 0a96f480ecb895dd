"""A collection of tables reads as one data set, member by member, in every library."""

from __future__ import annotations

import gc
from typing import Any

import entrepot
import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

ROWS = 1000


def _columns(part: int, rows: int = ROWS) -> dict[str, Any]:
    first = part * ROWS
    return {
        "number": np.arange(first, first + rows),
        "half": np.arange(first, first + rows) / 2,
        "text": [f"row {first + row}" for row in range(rows)],
    }


def _member(kind: str, part: int, rows: int = ROWS) -> Any:
    columns = _columns(part, rows)
    if kind == "polars.DataFrame":
        return pl.DataFrame(columns)
    if kind == "pandas.DataFrame":
        return pd.DataFrame(columns)
    table = pa.table(columns)
    return table if kind == "pyarrow.Table" else table.to_batches()[0]


KINDS = ["pyarrow.Table", "pyarrow.RecordBatch", "pandas.DataFrame", "polars.DataFrame"]


@pytest.fixture(params=KINDS)
def orders(store: entrepot.Store, request: pytest.FixtureRequest) -> entrepot.Collection:
    builder = store.collection("orders")
    for part in range(4):
        builder.put(_member(request.param, part), index=part)
    sealed = builder.seal()
    assert sealed.type == request.param
    return sealed


EXPECTED = list(range(4 * ROWS))


def test_one_arrow_stream(orders: entrepot.Collection) -> None:
    assert (orders.kind, orders.rows, orders.row_counts) == ("table", 4 * ROWS, [ROWS] * 4)
    reader = orders.to_reader()
    assert reader.schema.equals(orders.schema)
    assert orders.schema.names == ["number", "half", "text"]
    table = reader.read_all()
    assert table["number"].to_pylist() == EXPECTED
    assert table["text"][3999].as_py() == "row 3999"
    assert pa.table(orders)["half"].to_pylist() == [number / 2 for number in EXPECTED]
    assert orders.to_reader(["text", "number"]).read_all().schema.names == ["text", "number"]
    with pytest.raises(entrepot.InvalidArgument, match="no column 'nothing': it has 'number', 'half', 'text'"):
        orders.to_reader(["number", "nothing"])


def test_one_arrow_table(orders: entrepot.Collection) -> None:
    table = orders.to_arrow()
    assert table.schema.equals(orders.schema, check_metadata=True)
    assert table["number"].num_chunks == 4
    assert table["number"].to_pylist() == EXPECTED
    assert orders[2:].to_arrow()["number"].to_pylist() == EXPECTED[2 * ROWS :]
    assert orders[4:].to_arrow().num_rows == 0


def test_polars(orders: entrepot.Collection) -> None:
    frame = orders.to_polars()
    assert frame["number"].to_list() == EXPECTED
    assert frame.schema == orders.scan_polars().collect_schema()
    assert pl.DataFrame(orders)["number"].to_list() == EXPECTED
    lazy = orders.scan_polars().filter(pl.col("number") >= 3990).select("text", (pl.col("half") * 2).alias("twice"))
    assert lazy.collect()["twice"].to_list() == EXPECTED[3990:]
    assert lazy.collect().columns == ["text", "twice"]
    assert orders.scan_polars().head(1500).collect()["number"].to_list() == EXPECTED[:1500]
    assert orders.scan_polars().select(pl.len()).collect().item() == 4000
    assert orders[1:1].to_polars().is_empty()


def test_duckdb(orders: entrepot.Collection) -> None:
    duckdb = pytest.importorskip("duckdb")
    relation = orders.to_duckdb()
    for _ in range(2):
        assert relation.aggregate("sum(number), count(*)").fetchall() == [(sum(EXPECTED), 4000)]
    with duckdb.connect() as connection:
        other = orders.to_duckdb(connection)
        assert other.filter("number >= 3995").project("text").fetchall() == [(f"row {n}",) for n in EXPECTED[3995:]]
        # DuckDB finds the Python variable by its name.
        rows = connection.sql("select max(half) from orders where number < 100").fetchall()
        assert rows == [(49.5,)]


def test_batches_of_one_size_across_members(orders: entrepot.Collection) -> None:
    for rows in (1, 300, ROWS, 1500, 4000, 9000):
        batches = list(orders.iter_batches(rows)) if rows > 1 else list(orders[:1].iter_batches(rows))
        assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
        sizes = [batch.num_rows for batch in batches]
        assert set(sizes[:-1]) <= {rows}
        assert 0 < sizes[-1] <= rows
        assert [n for batch in batches for n in batch["number"].to_pylist()] == EXPECTED[: sum(sizes)]
        assert sum(sizes) in (ROWS, 4 * ROWS)
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(entrepot.InvalidArgument, match="a whole number, 1 or more"):
            orders.iter_batches(wrong)  # type: ignore[arg-type]


def test_arrow_tables_are_not_copied(store: entrepot.Store) -> None:
    builder = store.collection("wide")
    for part in range(4):
        builder.put(pa.table({"x": np.full(500_000, part)}), index=part)
    sealed = builder.seal()
    before = pa.total_allocated_bytes()
    table = sealed.to_arrow()
    stream = sealed.to_reader()
    batches = [stream.read_next_batch() for _ in range(4)]
    assert pa.total_allocated_bytes() - before < 1 << 20
    for part, batch in enumerate(batches):
        assert batch["x"].buffers()[1].address == table["x"].chunk(part).buffers()[1].address
        assert store.get(sealed.ids[part])["x"].chunk(0).buffers()[1].address == batch["x"].buffers()[1].address


def test_a_stream_holds_few_members_at_a_time(store: entrepot.Store, wait_until: Any) -> None:
    builder = store.collection("large")
    for part in range(12):
        builder.put(pa.table({"x": np.full(200_000, part)}), index=part)
    sealed = builder.seal()
    gc.collect()
    base = store._client.raw.pins
    most = total = 0
    for batch in sealed.to_reader():
        total += batch.num_rows
        most = max(most, store._client.raw.pins - base)
        del batch
    assert total == 12 * 200_000
    assert most <= 5  # the current member, the one being fetched, and up to two prefetched while gets are slow
    gc.collect()
    wait_until(lambda: store._client.raw.pins == base, "the last members to be let go")


def test_a_scan_reads_no_more_members_than_it_needs(store: entrepot.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = store.collection("parts")
    for part in range(5):
        builder.put(_member("pyarrow.Table", part), index=part)
    sealed = builder.seal()
    lazy = sealed.scan_polars()
    read: list[int] = []
    real = entrepot.Collection._pin_member

    def noting(self: entrepot.Collection, position: int) -> Any:
        read.append(position)
        return real(self, position)

    monkeypatch.setattr(entrepot.Collection, "_pin_member", noting)
    assert lazy.head(ROWS + 1).collect().height == ROWS + 1
    assert read == [0, 1]


def test_differing_columns_are_refused_by_name(store: entrepot.Store) -> None:
    builder = store.collection("orders")
    builder.put(pa.table({"a": [1], "b": ["x"]}), index=0)
    for other in ({"a": [1]}, {"b": ["x"], "a": [1]}, {"a": [1.5], "b": ["x"]}, {"a": [1], "c": ["x"]}):
        builder.put(pa.table(other), index=1, replace=True)
        with pytest.raises(
            entrepot.InvalidArgument, match=r"different columns at index 1 .*instead of a: int64, b: string"
        ):
            builder.seal()
    builder.put(pa.table({"a": [2], "b": ["y"]}).to_batches()[0], index=1, replace=True)
    with pytest.raises(entrepot.UnsupportedType, match=r"pyarrow.Table at index 0 and a pyarrow.RecordBatch"):
        builder.seal()


def test_metadata_is_that_of_the_first(store: entrepot.Store) -> None:
    builder = store.collection("orders")
    for part in range(3):
        field = pa.field("a", pa.int64(), metadata={"seen": str(part)})
        builder.put(pa.table([[part]], schema=pa.schema([field], metadata={"part": str(part)})), index=part)
    sealed = builder.seal()
    assert sealed.schema.metadata == {b"part": b"0"}
    assert sealed.to_arrow().schema.field("a").metadata == {b"seen": b"0"}
    assert sealed.to_arrow()["a"].to_pylist() == [0, 1, 2]


def test_dictionaries_and_nested_columns(store: entrepot.Store) -> None:
    builder = store.collection("orders")
    for part in range(3):
        columns = {
            "kind": pa.array([f"k{part}", "same"]).dictionary_encode(),
            "tags": pa.array([[part], []], pa.list_(pa.int32())),
            "where": pa.array([{"x": part}, None]),
        }
        builder.put(pa.table(columns), index=part)
    sealed = builder.seal()
    assert sealed.to_arrow()["kind"].to_pylist() == ["k0", "same", "k1", "same", "k2", "same"]
    assert sealed.to_polars()["where"].to_list()[4] == {"x": 2}
    assert [batch.num_rows for batch in sealed.iter_batches(4)] == [4, 2]
    assert sealed.to_duckdb().filter("kind = 'same'").shape == (3, 3)


def test_a_pandas_index_is_a_column(store: entrepot.Store) -> None:
    builder = store.collection("orders")
    for part in range(2):
        builder.put(pd.DataFrame({"x": [part, part]}, index=pd.Index([f"a{part}", "b"], name="key")), index=part)
    table = builder.seal().to_arrow()
    assert table.to_pandas().loc["a1", "x"] == 1
    assert table.schema.names == ["x", "key"]


def test_what_is_not_tables_has_no_table_views(store: entrepot.Store) -> None:
    builder = store.collection("values")
    builder.put({"a": 1}, index=0)
    sealed = builder.seal()
    views: list[Any] = [sealed.to_reader, sealed.to_arrow, sealed.to_polars, sealed.scan_polars, sealed.to_duckdb]
    for view in (*views, lambda: sealed.schema, sealed.__arrow_c_stream__):
        with pytest.raises(entrepot.InvalidArgument, match="holds dict, not tables"):
            view()
    with pytest.raises(entrepot.InvalidArgument, match="holds dict, not tensors"):
        sealed.iter_batches(3)
    empty = store.collection("empty").seal(0)
    with pytest.raises(entrepot.InvalidArgument, match="is empty"):
        empty.to_reader()


def test_objects_of_any_kind_in_a_frame_make_no_stream(store: entrepot.Store) -> None:
    builder = store.collection("odd")
    builder.put(pd.DataFrame({"x": [object, {1}]}), index=0)
    sealed = builder.seal()
    assert sealed[0]["x"][1] == {1}
    with pytest.raises(entrepot.UnsupportedType, match="cannot be read as Arrow"):
        sealed.to_arrow()


def test_a_polars_frame_of_objects_makes_no_stream(store: entrepot.Store) -> None:
    builder = store.collection("odd")
    builder.put(pl.DataFrame({"x": pl.Series([{1}, object], dtype=pl.Object)}), index=0)
    sealed = builder.seal()
    assert sealed[0]["x"][0] == {1}
    assert sealed.rows == 2


def test_get_writes_a_collection_to_a_file(store: entrepot.Store, tmp_path: Any, module_daemon: Any) -> None:
    from entrepot.cli import main

    builder = store.collection("orders")
    for part in range(3):
        builder.put(_member("pyarrow.Table", part), index=part)
    builder.seal()
    file = tmp_path / "orders.parquet"
    where = ["--address", module_daemon.address, "--scope", "tests", "--session", store.session_name]
    assert main(["get", "orders", "-o", str(file), *where]) == 0
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(file)["number"].to_pylist() == EXPECTED[: 3 * ROWS]


def test_a_member_that_is_lost_ends_the_stream_with_that_error(store: entrepot.Store) -> None:
    builder = store.collection("orders")
    for part in range(3):
        builder.put(_member("pyarrow.Table", part), index=part)
    sealed = builder.seal()
    store.delete(sealed.ids[1])
    reader = sealed.to_reader()
    assert reader.read_next_batch().num_rows == ROWS
    with pytest.raises(entrepot.ObjectLost, match="member 1"):
        reader.read_next_batch()


def test_wide_tables_are_told_apart(store: entrepot.Store) -> None:
    builder = store.collection("wide")
    names = [f"column number {number}" for number in range(600)]
    builder.put(pa.table({name: [1] for name in names}), index=0)
    builder.put(pa.table({name: [1] for name in [*names[:-1], "another"]}), index=1)
    with pytest.raises(entrepot.InvalidArgument, match="different columns"):
        builder.seal()
