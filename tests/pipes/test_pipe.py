"""Both ends of pipes in Python: everything arrives, and no failure looks like an end."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import entrepot
import pyarrow as pa
import pytest
from entrepot.errors import InvalidArgument, StreamFailed, Timeout
from entrepot_pipes import Dialect, open_export, open_import
from entrepot_pipes.pipe import exists

WAIT = 60.0
Spawn = Callable[..., "subprocess.Popen[str]"]


def rows(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(start, start + count)), "name": [f"n{i}" for i in range(count)]})


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(16) as threads:
        yield threads


def export_rows(name: str, start: int, count: int, store: entrepot.Store) -> None:
    with open_export(name, store=store, timeout=WAIT) as export:
        for first in range(start, start + count, 100):
            export.write(rows(first, min(100, start + count - first)))


def import_ids(name: str, store: entrepot.Store) -> list[int]:
    with open_import(name, store=store, timeout=WAIT) as reader:
        return [i for batch in reader for i in batch["id"].to_pylist()]


@pytest.mark.parametrize("first", ["export", "import"])
def test_either_end_may_come_first(
    first: str, store: entrepot.Store, pool: ThreadPoolExecutor, wait_until: Callable[..., None]
) -> None:
    def start_export() -> Any:
        return pool.submit(export_rows, "db://either", 0, 1000, store)

    def start_import() -> Any:
        return pool.submit(import_ids, "db://either", store)

    starts = [start_export, start_import] if first == "export" else [start_import, start_export]
    begun = [starts[0]()]
    wait_until(lambda: any(s["writers_open"] for s in store.status()["streams"]), "the first end to register")
    begun.append(starts[1]())
    results = [future.result(WAIT) for future in begun]
    assert list(range(1000)) in results
    assert store.status()["streams"] == []
    assert store.status()["objects"] == 0


def test_a_table_without_rows_keeps_its_columns(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    table = pa.table({"x": pa.array([], pa.float32()), "d": pa.array([], pa.dictionary(pa.int8(), pa.string()))})

    def export() -> None:
        with open_export("db://empty", store=store, timeout=WAIT) as end:
            end.write(table)

    exported = pool.submit(export)
    with open_import("db://empty", store=store, timeout=WAIT) as reader:
        assert reader.schema.equals(table.schema)
        assert sum(batch.num_rows for batch in reader) == 0
    exported.result(WAIT)


def test_large_batches_are_cut(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    whole = pa.record_batch({"id": pa.array(range(5_000_000))})

    def export() -> None:
        with open_export("db://large", store=store, timeout=WAIT) as end:
            end.write(whole)

    exported = pool.submit(export)
    with open_import("db://large", store=store, timeout=WAIT) as reader:
        batches = list(reader)
    exported.result(WAIT)
    assert len(batches) > 1
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches([whole]))


@pytest.mark.parametrize(("exporters", "importers"), [(3, 1), (1, 3), (3, 2), (2, 3), (4, 4)])
def test_many_to_many(exporters: int, importers: int, store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    read = [pool.submit(import_ids, f"db://many?workers={importers}", store) for _ in range(importers)]
    written = [
        pool.submit(export_rows, f"db://many?workers={exporters}", 1000 * number, 1000, store)
        for number in range(exporters)
    ]
    for future in written:
        future.result(WAIT)
    received = [future.result(WAIT) for future in read]
    assert sorted(i for ids in received for i in ids) == list(range(1000 * exporters))
    assert sum(1 for ids in received if not ids) == max(0, importers - exporters)
    assert store.status()["streams"] == []


def test_queries_of_one_name_are_told_apart(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    queries = [("db://q?query=a", 0), ("db://q?query=b", 5000), ("db://q", 9000)]
    read = [pool.submit(import_ids, name, store) for name, _ in queries]
    for name, start in queries:
        pool.submit(export_rows, name, start, 300, store)
    for (_, start), future in zip(queries, read, strict=True):
        assert future.result(WAIT) == list(range(start, start + 300))


def test_a_name_is_used_again_and_again(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    written = [pool.submit(export_rows, "db://again", 0, 250, store) for _ in range(5)]
    for _ in range(5):
        assert import_ids("db://again", store) == list(range(250))
    for future in written:
        future.result(WAIT)
    assert store.status()["streams"] == []


def test_nobody_comes(store: entrepot.Store) -> None:
    export = open_export("db://lonely?query=q7", store=store, timeout=0.2)
    with pytest.raises(Timeout, match=r"db://lonely\?query=q7.*exporter 1 \(process \d+.* waited for an importer"):
        export.write(rows(0, 1))
    with pytest.raises(StreamFailed, match=r"an exporter failed.*nobody came"):
        open_import("db://lonely?query=q7", store=store, timeout=0.2)
    reader = open_import("db://lonely?query=q7", store=store, timeout=0.2)
    with pytest.raises(Timeout, match=r"importer 1 .* waited for an exporter"):
        next(reader)


def test_another_exporter_does_not_come(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    written = pool.submit(export_rows, "db://half?workers=2", 0, 10, store)
    with (
        pytest.raises(Timeout, match=r"waited for exporter 2"),
        open_import("db://half", store=store, timeout=1.0) as reader,
    ):
        for _ in reader:
            pass
    if (error := written.exception(WAIT)) is not None:  # it may have written everything before
        assert isinstance(error, StreamFailed)


def test_workers_of_one_end_that_disagree(store: entrepot.Store) -> None:
    first = open_export("db://disagree?workers=2", store=store)
    with pytest.raises(InvalidArgument, match="workers=2, this one workers=3"):
        open_export("db://disagree?workers=3", store=store)
    first.abort("end of test")


EXPORTER = """
import sys, pyarrow as pa, entrepot_pipes
export = entrepot_pipes.open_export(sys.argv[1], timeout=60)
batch = pa.record_batch({"id": list(range(200_000))})
print("registered", flush=True)
export.write(batch)
export.flush()
print("written", flush=True)
sys.stdin.readline()
export.close()
print("closed", flush=True)
"""

IMPORTER = """
import sys, entrepot, entrepot_pipes
with entrepot_pipes.open_import(sys.argv[1], timeout=60) as reader:
    print("registered", flush=True)
    print(next(reader).num_rows, flush=True)
    sys.stdin.readline()
    try:
        for batch in reader: pass
        print("end", flush=True)
    except entrepot.StreamFailed as error:
        print("failed", flush=True)
"""


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_killed_exporter_is_an_error(store: entrepot.Store, spawn: Spawn) -> None:
    exporter = spawn(EXPORTER, "db://killed")
    with open_import("db://killed", store=store, timeout=WAIT) as reader:
        assert next(reader).num_rows == 200_000
        assert [line(exporter), line(exporter)] == ["registered", "written"]
        exporter.kill()
        with pytest.raises(StreamFailed, match=f"db://killed: an exporter failed.*{exporter.pid}"):
            next(reader)
        with pytest.raises(InvalidArgument, match="closed"):  # and not the end
            next(reader)


def test_an_exporter_that_is_killed_before_anybody_came(
    store: entrepot.Store, spawn: Spawn, pool: ThreadPoolExecutor
) -> None:
    exporter = spawn(EXPORTER, "db://early")
    assert line(exporter) == "registered"
    assert exists("db://early", store=store)
    exporter.kill()
    exporter.wait(WAIT)
    with pytest.raises(StreamFailed, match="an exporter failed"):
        import_ids("db://early", store)
    written = pool.submit(export_rows, "db://early", 0, 10, store)  # and then the name is free again
    assert import_ids("db://early", store) == list(range(10))
    written.result(WAIT)


def test_a_killed_importer_is_an_error(store: entrepot.Store, spawn: Spawn) -> None:
    importer = spawn(IMPORTER, "db://reader")
    export = open_export("db://reader", store=store, timeout=WAIT)
    export.write(rows(0, 100_000))
    export.flush()
    assert [line(importer), line(importer)] == ["registered", "100000"]
    importer.kill()

    def write_on() -> None:
        for number in range(1000):  # the pipe takes some more, and then there is no room
            export.write(rows(number, 100_000))

    with pytest.raises(StreamFailed, match="an importer failed"):
        write_on()
    assert export.closed


def test_an_importer_that_stops_early(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    def export() -> None:
        with open_export("db://stops", store=store, timeout=WAIT) as end:
            for number in range(1000):
                end.write(rows(number, 100_000))

    written = pool.submit(export)
    with open_import("db://stops", store=store, timeout=WAIT) as reader:
        next(reader)
    with pytest.raises(StreamFailed, match="stopped reading before the end"):
        written.result(WAIT)


def test_a_failed_block_aborts(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    def export() -> None:
        with open_export("db://fails", store=store, timeout=WAIT) as end:
            end.write(rows(0, 10))
            raise ValueError("no more rows")

    written = pool.submit(export)
    with pytest.raises(StreamFailed, match="ValueError: no more rows"):
        import_ids("db://fails", store)
    assert isinstance(written.exception(WAIT), ValueError)


def test_other_columns_are_refused(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    read = pool.submit(import_ids, "db://columns", store)
    export = open_export("db://columns", store=store, timeout=WAIT)
    export.write(rows(0, 3))
    with pytest.raises(InvalidArgument, match=r"x \(int64\), and those before id \(int64\), name"):
        export.write(pa.record_batch({"x": [1]}))
    export.close()
    assert read.result(WAIT) == [0, 1, 2]


def test_forms_are_kept_apart(store: entrepot.Store) -> None:
    export = open_export("db://form", store=store, form="text")
    with pytest.raises(InvalidArgument, match="use write_text"):
        export.write(rows(0, 1))
    export.abort("end of test")


def test_a_forked_child_neither_writes_nor_ends_it(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    read = pool.submit(import_ids, "db://fork", store)
    export = open_export("db://fork", store=store, timeout=WAIT)
    export.write(rows(0, 10))
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        message = b"nothing"
        try:
            export.close()
            export.abort("child")
            export.write(rows(0, 1))
        except InvalidArgument as error:
            message = str(error).encode()
        finally:
            os.write(writing, message)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as text:
        assert "before a fork" in text.read()
    os.waitpid(pid, 0)
    export.write(rows(10, 10))
    export.close()
    assert read.result(WAIT) == list(range(20))


def through(
    store: entrepot.Store,
    pool: ThreadPoolExecutor,
    text: bytes,
    exported: Dialect | None,
    imported: Dialect | None,
    exporters: int = 1,
) -> bytes:
    """Text in, text out."""

    def export() -> None:
        with open_export(
            f"db://text?workers={exporters}", store=store, form="text", dialect=exported, timeout=WAIT
        ) as end:
            for start in range(0, len(text), 7):
                end.write_text(text[start : start + 7])

    written = [pool.submit(export) for _ in range(exporters)]
    with open_import("db://text", store=store, form="text", dialect=imported, timeout=WAIT) as reader:
        received = b""
        while data := reader.read_text(11):
            assert len(data) <= 11
            received += data
    for future in written:
        future.result(WAIT)
    return received


def test_text_of_one_dialect_passes_as_it_is(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    text = b'a;"b"\r\n01;"x;\r\ny"\r\n\r\nnot a table at all'
    dialect = Dialect(delimiter=";", newline="\r\n")
    assert through(store, pool, text, None, None) == text
    assert through(store, pool, text, dialect, dialect) == text
    assert through(store, pool, text, dialect, None) == text


def test_text_of_another_dialect_is_written_anew(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    text = b'a;b\n007;"x;y"\n1e3;\n'
    received = through(
        store, pool, text, Dialect(delimiter=";"), Dialect(delimiter="|", nulls=("\\N",), newline="\r\n")
    )
    assert received == b"a|b\r\n007|x;y\r\n1e3|\\N\r\n"


def test_text_of_several_exporters_has_one_header(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    assert through(store, pool, b"a,b\n1,2\n", None, None, exporters=3) == b"a,b\n" + 3 * b"1,2\n"


def test_text_to_columns_and_back(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    def export_text() -> None:
        with open_export("db://in", store=store, form="text", timeout=WAIT) as end:
            end.write_text(b"id,name,x\n1,one,0.5\n2,,1.5\n")

    def export_columns(table: pa.Table) -> None:
        with open_export("db://out", store=store, timeout=WAIT) as end:
            end.write(table)

    pool.submit(export_text)
    with open_import("db://in", store=store, timeout=WAIT) as reader:
        table = pa.Table.from_batches(list(reader))
    assert table.to_pydict() == {"id": [1, 2], "name": ["one", None], "x": [0.5, 1.5]}
    pool.submit(export_columns, table)
    with open_import("db://out", store=store, form="text", dialect=Dialect(delimiter="\t"), timeout=WAIT) as reader:
        assert reader.read_text() == b"id\tname\tx\n1\tone\t0.5\n2\t\t1.5\n"


def test_a_block_of_other_types_arrives_to_the_letter(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    plain = b"".join(b"%d,%d\n" % (i, i) for i in range(200_000))
    text = b"a,b\n" + plain + b"007,north\n"

    def export() -> None:
        with open_export("db://types", store=store, form="text", dialect=Dialect(), timeout=WAIT) as end:
            for start in range(0, len(text), 1 << 18):
                end.write_text(text[start : start + (1 << 18)])

    written = pool.submit(export)
    with open_import("db://types", store=store, timeout=WAIT) as reader:
        batches = list(reader)
    written.result(WAIT)
    assert batches[0].schema.types == [pa.int64(), pa.int64()]
    assert batches[-1].schema.names == ["a", "b"]
    assert batches[-1].to_pylist()[-1] == {"a": "007", "b": "north"}
    assert sum(batch.num_rows for batch in batches) == 200_001
    written = pool.submit(export)
    with open_import("db://types", store=store, form="text", dialect=Dialect(nulls=("NULL",)), timeout=WAIT) as reader:
        assert reader.read_text() == text
    written.result(WAIT)


def test_many_threads_register_at_once(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    barrier = threading.Barrier(8)

    def export(number: int) -> None:
        barrier.wait(WAIT)
        export_rows("db://race?workers=8", number, 1, store)

    for number in range(8):
        pool.submit(export, number)
    assert sorted(import_ids("db://race", store)) == list(range(8))
