"""``Store.build_table``: tables that grow by record batches, and are sealed at the end or leave nothing."""

from __future__ import annotations

import datetime
import decimal
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pytest
from entrepot._builders import small_batches, table_builder
from entrepot._builders.small_batches import SmallBatches
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from forked_child import in_child

pc: Any = pyarrow.compute  # its functions are created at import
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
ROWS = 100_000  # 800 KB of integers, and more of text: a chunk of its own


def batch(rows: int, start: int = 0) -> Any:
    numbers = range(start, start + rows)
    return pa.record_batch([pa.array(numbers), pa.array([f"text {i}" for i in numbers])], schema=SCHEMA)


@pytest.fixture(autouse=True)
def _nothing_left(store: entrepot.Store, wait_until: Callable[..., None]) -> Iterator[None]:
    """No test leaves leases: what was built is sealed, or went back."""
    yield
    if not store.closed:
        wait_until(lambda: store.status()["leased_bytes"] == 0, "all leases to be returned")


def test_batches_become_chunks_of_one_table(store: entrepot.Store) -> None:
    batches = [batch(ROWS, ROWS * i) for i in range(4)]
    with store.build_table(SCHEMA, name="table") as table:
        for item in batches:
            table.append(item)
            assert store.list() == []
        assert table.num_rows == 4 * ROWS
        assert table.receipt is None
    value = store.get_by_name("table")
    assert value.equals(pa.Table.from_batches(batches))
    assert [len(chunk) for chunk in value["n"].chunks] == [ROWS] * 4
    assert table.receipt is not None
    assert table.receipt.id == table.id == store.resolve("table")
    assert table.receipt.nbytes == store.info(table.id).nbytes


def test_the_producers_memory_can_be_used_again_at_once(store: entrepot.Store) -> None:
    numbers = np.zeros(500_000, dtype=np.int64)
    few = np.zeros(10, dtype=np.int64)
    schema = pa.schema([("n", pa.int64())])
    with store.build_table(schema) as table:
        for value in range(3):
            numbers[:] = value
            table.append(pa.record_batch([pa.array(numbers)], schema=schema))
            few[:] = value
            table.append(pa.record_batch([pa.array(few)], schema=schema))
    expected = np.concatenate([np.repeat(value, 500_010) for value in range(3)])
    assert (store.get(table.id)["n"].to_numpy() == expected).all()


def test_many_tiny_batches_make_few_chunks(store: entrepot.Store) -> None:
    row = batch(1)
    with store.build_table(SCHEMA) as table:
        for _ in range(20_000):
            table.append(row)
        table.append(batch(ROWS))
        table.append(row)
    value = store.get(table.id)
    assert value.equals(pa.concat_tables([pa.Table.from_batches([row] * 20_000 + [batch(ROWS), row])]))
    assert [len(chunk) for chunk in value["n"].chunks] == [20_000, ROWS, 1]


@pytest.mark.parametrize("limit", ["MAX_CHUNKS", "MAX_BUFFERS"])
def test_the_number_of_chunks_is_bounded(store: entrepot.Store, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(table_builder, "MIN_CHUNK_BYTES", 8_000)
    monkeypatch.setattr(table_builder, limit, 8)
    schema = pa.schema([("n", pa.int64())])
    with store.build_table(schema) as table:
        for start in range(0, 500_000, 1_000):
            table.append(pa.record_batch([pa.array(range(start, start + 1_000))], schema=schema))
    value = store.get(table.id)
    assert value["n"].to_numpy().tolist() == list(range(500_000))
    assert value["n"].num_chunks < 60  # rather than 500


def test_buffers_of_sealed_objects_are_not_copied(store: entrepot.Store) -> None:
    sealed = store.get(store.put(pa.Table.from_batches([batch(ROWS)])))
    with store.build_table(SCHEMA) as table:
        table.append(batch(ROWS))
        table.append(sealed)
        del sealed
    info = store.info(table.id)
    assert info.referenced_bytes > 0.4 * info.nbytes
    assert store.get(table.id).equals(pa.Table.from_batches([batch(ROWS), batch(ROWS)]))


def test_tables_and_other_libraries_frames_can_be_appended(store: entrepot.Store) -> None:
    frame = pl.DataFrame({"n": [1, 2], "text": ["a", "b"]})
    with store.build_table(pa.schema([("n", pa.int64()), ("text", pa.string_view())])) as table:
        table.append(frame)
        table.append(frame.to_arrow(compat_level=pl.CompatLevel.newest()))
    assert store.get(table.id).to_pydict() == {"n": [1, 2, 1, 2], "text": ["a", "b", "a", "b"]}
    with store.build_table(SCHEMA) as table:
        table.append(pa.Table.from_batches([batch(ROWS), batch(0), batch(3)]))
    assert store.get(table.id).num_rows == ROWS + 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pa.record_batch([pa.array([1], pa.int32()), pa.array(["a"])], names=["n", "text"]), "'n'.*int32.*int64"),
        (pa.table({"n": [1], "text": pa.array(["a"], pa.large_string())}), "'text'.*large_string.*string"),
        (pa.table({"n": [1]}), "it lacks 'text'"),
        (pa.table({"n": [1], "text": ["a"], "more": [1]}), "the table has no 'more'"),
        (pa.table({"text": ["a"], "n": [1]}), r"in the order \['text', 'n'\]"),
        ({"n": [1]}, "but got a dict"),
        (None, "but got a NoneType"),
    ],
    ids=["type", "text type", "missing", "unknown", "order", "dict", "None"],
)
def test_what_does_not_fit_the_schema_is_refused_and_the_builder_goes_on(
    store: entrepot.Store, data: Any, words: str
) -> None:
    with store.build_table(SCHEMA) as table:
        table.append(batch(2))
        with pytest.raises(entrepot.InvalidArgument, match=words):
            table.append(data)
        assert table.num_rows == 2
        table.append(batch(1))
    assert store.get(table.id).num_rows == 3


def test_nulls_need_a_nullable_column(store: entrepot.Store) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with store.build_table(schema) as table:
        with pytest.raises(entrepot.InvalidArgument, match=r"'n' of the batch has 1 nulls.*not nullable"):
            table.append(pa.record_batch([pa.array([1, None])], names=["n"]))
        table.append(pa.record_batch([pa.array([1, 2])], names=["n"]))
    assert store.get(table.id).schema == schema


@pytest.mark.parametrize("rows", [3, 300_000])
def test_differing_dictionaries(store: entrepot.Store, rows: int) -> None:
    values: list[list[str | None]] = [["a", "b", "c"], ["c", "d", "a"], ["e", None, "a"], ["a", "b", "c"]]
    columns = [pa.array(row * (rows // 3)).dictionary_encode() for row in values]
    schema = pa.schema([("d", columns[0].type)])
    with store.build_table(schema) as table:
        for column in columns:
            table.append(pa.record_batch([column], schema=schema))
    value = store.get(table.id)
    assert value.schema == schema
    assert value["d"].to_pylist() == [item for row in values for item in row * (rows // 3)]


def test_dictionaries_too_many_for_their_index_type(store: entrepot.Store) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    columns = [pa.array([f"{start}-{i}" for i in range(100)]).cast(kind) for start in range(5)]
    with store.build_table(pa.schema([("d", kind)])) as table:
        for column in columns:
            table.append(pa.record_batch([column], names=["d"]))
    assert store.get(table.id)["d"].to_pylist() == pa.chunked_array(columns).to_pylist()


def test_slices_of_text_views_bring_only_the_text_that_they_show(store: entrepot.Store) -> None:
    views = pa.array([f"{i:0100}" for i in range(50_000)], pa.string_view())
    schema = pa.schema([("v", pa.string_view())])
    parent = pa.record_batch([views], schema=schema)
    with store.build_table(schema) as table:
        for start in range(0, 50_000, 500):
            table.append(parent.slice(start, 5))
    value = store.get(table.id)
    assert value["v"].to_pylist() == [f"{i:0100}" for i in range(50_000) if i % 500 < 5]
    assert value["v"].num_chunks == 1
    assert store.info(table.id).nbytes < 500 * 200


def test_small_batches_are_combined_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "_STREAM_BYTES", 2_000)
    small = SmallBatches(SCHEMA)
    for start in range(100):
        small.add(batch(1, start), 16)
        small.combine_if_large()
    assert 1 < len(small._recorded.combined) < 100
    (combined,) = small.batches()
    assert combined["n"].to_pylist() == list(range(100))
    assert (small.num_rows, small.nbytes) == (100, 1600)


def test_storing_small_batches_goes_on_after_a_failure() -> None:
    small = SmallBatches(pa.schema([("d", pa.dictionary(pa.int8(), pa.int64()))]))
    for start in (0, 100):  # too many values for one dictionary
        column = pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array(range(start, start + 100)))
        small.add(pa.record_batch([column], names=["d"]), 900)
    stored: list[Any] = []

    def store(item: Any) -> Any:
        if len(stored) == 1 and not full:
            full.append(True)
            raise entrepot.StoreFull("full")
        stored.append(item)
        return item

    full: list[bool] = []
    with pytest.raises(entrepot.StoreFull):
        small.store(store)
    assert [batch["d"].to_pylist()[0] for batch in small.store(store)] == [0, 100]
    assert len(stored) == 2


@pytest.mark.parametrize("rows", [0, 3], ids=["no rows", "rows"])
def test_a_table_without_columns(store: entrepot.Store, rows: int) -> None:
    with store.build_table(pa.schema([])) as table:
        if rows:
            table.append(batch(rows).select([]))
    value = store.get(table.id)
    assert (value.num_columns, value.num_rows) == (0, rows)


def test_a_table_without_batches(store: entrepot.Store) -> None:
    schema = SCHEMA.with_metadata({"unit": "m"})
    with store.build_table(schema) as table:
        pass
    value = store.get(table.id)
    assert value.num_rows == 0
    assert value.schema.equals(schema, check_metadata=True)


def test_an_exception_gives_everything_back(store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    before = store.status()
    table = store.build_table(SCHEMA, name="never")

    def fail() -> None:
        with table:
            table.append(store.get(store.put(pa.Table.from_batches([batch(ROWS)]), name="parent")))
            table.append(batch(ROWS))
            table.append(batch(1))
            assert store.status()["leased_bytes"] > before["leased_bytes"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    wait_until(lambda: store.status()["leased_bytes"] == before["leased_bytes"], "the leases")
    assert [entry.id for entry in store.list()] == [store.resolve("parent")]
    store.delete(store.resolve("parent"))
    wait_until(lambda: store.status()["used_bytes"] <= before["used_bytes"], "the memory of the parent")
    assert not store.list()


def test_dropped_and_forgotten_builders_give_everything_back(
    store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    table = store.build_table(SCHEMA)
    table.append(batch(ROWS))
    table.drop()
    table.drop()
    with pytest.raises(entrepot.InvalidArgument, match="sealed or dropped"):
        table.append(batch(1))
    with pytest.raises(entrepot.InvalidArgument, match="sealed or dropped"):
        table.seal()
    forgotten = store.build_table(SCHEMA)
    forgotten.append(batch(ROWS))
    del forgotten
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the leases")
    assert store.list() == []


def test_it_is_sealed_once(store: entrepot.Store) -> None:
    table = store.build_table(SCHEMA)
    table.append(batch(ROWS))
    assert table.seal() == table.id
    with pytest.raises(entrepot.InvalidArgument, match="already sealed"):
        table.seal()
    with pytest.raises(entrepot.InvalidArgument, match="already sealed"):
        table.append(batch(1))
    table.drop()
    assert store.get(table.id).num_rows == ROWS


def test_a_sealed_table_may_be_sealed_early_in_its_block(store: entrepot.Store) -> None:
    with store.build_table(SCHEMA) as table:
        table.append(batch(1))
        table.seal()
    assert store.get(table.id).num_rows == 1


def test_a_taken_name_discards_the_table(store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    store.put(b"x", name="taken")
    with pytest.raises(entrepot.ObjectExists), store.build_table(SCHEMA, name="taken") as table:
        table.append(batch(ROWS))
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the leases")
    assert store.get_by_name("taken") == b"x"
    with store.build_table(SCHEMA, name="taken", replace=True) as table:
        table.append(batch(ROWS))
    assert store.get_by_name("taken").num_rows == ROWS


def test_identical_content_under_the_same_id_is_success(store: entrepot.Store) -> None:
    oid = store.derive("table")
    receipts = []
    for _ in range(2):
        with store.build_table(SCHEMA, id=oid) as table:
            table.append(batch(ROWS))
        receipts.append(table.receipt)
    assert [receipt.existed for receipt in receipts if receipt] == [False, True]


def test_locality_set_and_consumers(store: entrepot.Store) -> None:
    with store.build_table(SCHEMA, locality_set=store.locality_set("features"), consumers=1) as table:
        table.append(batch(1))
    assert store.consumed(table.id, "reader") == 0


def test_a_full_store_refuses_an_append_and_keeps_what_there_is(
    store: entrepot.Store, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    store.wait_provisioned()
    monkeypatch.setattr("entrepot._store.objects.PUT_WAIT_SECONDS", 1.0)
    schema = pa.schema([("b", pa.binary())])
    large = pa.record_batch([pa.array([bytes(20 << 20)])], schema=schema)

    def fill(table: entrepot.TableBuilder) -> None:
        for _ in range(30):
            table.append(large)

    with store.build_table(schema) as table:
        with pytest.raises(entrepot.StoreFull):
            fill(table)
        appended = table.num_rows
        assert appended >= 2
        table.append(pa.record_batch([pa.array([b"small"])], schema=schema))
    assert store.get(table.id)["b"].num_chunks == appended + 1
    store.delete(table.id)
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the leases")
    failing = store.build_table(schema)
    with pytest.raises(entrepot.StoreFull), failing:
        fill(failing)
    wait_until(lambda: store.status()["leased_bytes"] == 0, "the leases")
    assert not store.exists(failing.id)
    monkeypatch.undo()
    assert store.put(bytes(150 << 20))


@pytest.mark.parametrize("state", ["created", "small", "stored", "both"])
def test_a_killed_process_leaves_nothing(
    store: entrepot.Store, spawn: Callable[..., Any], wait_until: Callable[..., None], state: str
) -> None:
    before = store.status()
    client = spawn(
        """
        import pyarrow as pa
        schema = pa.schema([("n", pa.int64())])
        table = store.build_table(schema, name="half")
        table.__enter__()
        if sys.argv[1] in ("small", "both"):
            table.append(pa.record_batch([pa.array(range(5))], schema=schema))
        if sys.argv[1] in ("stored", "both"):
            for _ in range(3):
                table.append(pa.record_batch([pa.array(range(1_000_000))], schema=schema))
        print(table.num_rows, flush=True)
        sys.stdin.readline()
        """,
        state,
    )
    rows = int(client.stdout.readline())
    if rows > 5:
        assert store.status()["leased_bytes"] >= 3 * 8_000_000
    client.kill()
    client.wait(30)
    wait_until(lambda: len(store.status()["clients"]) == 1, "the dead client to go")
    wait_until(lambda: store.status()["leased_bytes"] == before["leased_bytes"], "the dead client's leases")
    assert store.list() == []
    assert store.status()["used_bytes"] == before["used_bytes"]


def test_a_forked_child_cannot_go_on_but_the_parent_can(store: entrepot.Store) -> None:
    with store.build_table(SCHEMA) as table:
        table.append(batch(ROWS))
        table.append(batch(2))

        def child() -> None:
            for call in (lambda: table.append(batch(1)), table.seal):
                with pytest.raises(entrepot.NotSealed, match="only the parent can"):
                    call()
            table.drop()
            with store.build_table(SCHEMA, id=store.derive("childs")) as own:
                own.append(batch(ROWS))

        in_child(child)()
        table.append(batch(ROWS))
    assert store.get(table.id).num_rows == 2 * ROWS + 2
    assert store.get(store.derive("childs")).num_rows == ROWS


def test_threads_append_to_one_table(store: entrepot.Store) -> None:
    with store.build_table(SCHEMA) as table:

        def append(thread: int) -> None:
            for number in range(20):
                table.append(batch(ROWS if number % 5 == 0 else 50, thread * 1_000_000))

        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    value = store.get(table.id)
    assert value.num_rows == table.num_rows == 4 * (4 * ROWS + 16 * 50)
    counts = value.group_by(value.column_names[:1]).aggregate([([], "count_all")])
    assert set(counts["count_all"].to_pylist()) == {4, 20}


def test_a_killed_daemon_does_not_matter(store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    with store.build_table(SCHEMA) as table:
        table.append(batch(ROWS))
        pid = store.status()["pid"]
        os.kill(pid, signal.SIGKILL)
        table.append(batch(ROWS, ROWS))
        wait_until(lambda: store.status()["pid"] not in (0, pid), "another daemon")
    assert store.get(table.id).equals(pa.Table.from_batches([batch(ROWS), batch(ROWS, ROWS)]))


def test_batches_that_were_made_in_the_store(store: entrepot.Store) -> None:
    store.wait_provisioned()
    schema = pa.schema([("n", pa.int64())])
    with store.build_table(schema) as table, store.allocating():
        for number in range(3):
            table.append(pa.record_batch([pc.add(pa.array(range(500_000)), number)], schema=schema))
            table.append(pa.record_batch([pa.array([number])], schema=schema))
    expected = np.concatenate([np.append(np.arange(500_000) + number, number) for number in range(3)])
    assert (store.get(table.id)["n"].to_numpy() == expected).all()


def test_a_dead_store_ends_the_builder(store: entrepot.Store, daemon: Any) -> None:
    table = store.build_table(SCHEMA)
    table.append(batch(ROWS))
    daemon.stop()
    daemon.start()
    with pytest.raises(entrepot.InstanceLost, match="create another builder"):
        table.append(batch(ROWS))
    with pytest.raises(entrepot.InstanceLost, match="create another builder"):
        table.seal()
    table.drop()
    assert store.list() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"schema": {"n": "int64"}}, "must be a pyarrow.Schema"),
        ({"schema": SCHEMA, "id": "xyz"}, "xyz"),
        ({"schema": SCHEMA, "name": ""}, "1 to 255 bytes"),
        ({"schema": SCHEMA, "rows": -1}, "number of rows"),
        ({"schema": SCHEMA, "rows": 1.5}, "number of rows"),
        ({"schema": SCHEMA, "replace": "yes"}, "replace"),
    ],
    ids=["schema", "id", "name", "negative", "fraction", "replace"],
)
def test_wrong_arguments(store: entrepot.Store, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(entrepot.InvalidArgument, match=words):
        store.build_table(**arguments)


def test_a_closed_store_builds_nothing(daemon: Any) -> None:
    store = entrepot.connect(daemon.address, scope="tests")
    table = store.build_table(SCHEMA)
    store.close()
    with pytest.raises(entrepot.StoreUnavailable, match="closed"):
        store.build_table(SCHEMA)
    with pytest.raises(entrepot.StoreUnavailable, match="closed"):
        table.append(batch(ROWS))
    table.drop()


COLUMNS: dict[Any, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=20),
    pa.string_view(): st.text(max_size=20),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.timezone.utc)),
    pa.decimal128(9, 2): st.integers(-(10**8), 10**8).map(lambda n: decimal.Decimal(n).scaleb(-2)),
    pa.list_(pa.string()): st.lists(st.text(max_size=5), max_size=4),
    pa.list_(pa.int8(), 2): st.lists(st.integers(-128, 127), min_size=2, max_size=2),
    pa.struct([("a", pa.int16()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.integers(-9, 9), "b": st.text(max_size=5)}
    ),
    pa.map_(pa.string(), pa.int32()): st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9)), max_size=3),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["a", "b", "c"]),
    pa.null(): st.none(),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    types = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4))
    schema = pa.schema([(f"c{index}", type_) for index, type_ in enumerate(types)])
    batches = []
    for rows in draw(st.lists(st.integers(0, 30), max_size=6)):
        columns = [draw(st.lists(st.none() | COLUMNS[type_], min_size=rows, max_size=rows)) for type_ in types]
        arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
        made = pa.record_batch(arrays, schema=schema)
        batches.append(made.slice(draw(st.integers(0, rows))))
    return schema, batches


@pytest.mark.parametrize("chunk_bytes", [1, 200, 1 << 20])
def test_any_schema_survives(module_daemon: Any, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(table_builder, "MIN_CHUNK_BYTES", chunk_bytes)
    with entrepot.connect(module_daemon.address, scope="hypothesis") as store:

        @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(tables())
        def check(table: tuple[Any, list[Any]]) -> None:
            schema, batches = table
            with store.build_table(schema) as builder:
                for item in batches:
                    builder.append(item)
            value = store.get(builder.id)
            value.validate(full=True)
            assert value.schema == schema
            assert value.to_pylist() == pa.Table.from_batches(batches, schema=schema).to_pylist()
            assert store.delete(builder.id)

        check()
