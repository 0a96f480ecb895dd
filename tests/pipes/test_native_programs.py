"""psql and sqlite3, unmodified, at FIFOs of ``entrepot pipe run``; a killed exporter leaves no rows committed."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import pyarrow as pa
import pytest
from entrepot.errors import StreamFailed
from entrepot_pipes import open_export, open_import
from postgres_server import NoPostgres, programs_folder, run_server

WAIT = 60.0
PipeRun = Callable[..., "subprocess.Popen[str]"]
needs_sqlite = pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 program is not on this machine")


@pytest.fixture
def pipe_run(store: entrepot.Store) -> Iterator[PipeRun]:
    """``pipe_run(*words)``: start ``entrepot pipe run`` with these words."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "entrepot.cli", "pipe", "run", "--timeout", "60", *words]
        started.append(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=WAIT)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=WAIT)
    return process.returncode, output


@pytest.fixture(scope="module")
def duckdb() -> str:
    """The program duckdb, of the package duckdb-cli."""
    program = shutil.which("duckdb", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("the program duckdb is not on this machine")
    return program


EXPORTER = """
import sys, pyarrow as pa, entrepot_pipes
export = entrepot_pipes.open_export(sys.argv[1], timeout=60)
for first in range(0, 20):
    export.write(pa.record_batch({"id": list(range(first * 10_000, first * 10_000 + 10_000))}))
export.flush()
print("written", flush=True)
sys.stdin.readline()
"""


@needs_sqlite
def test_sqlite_to_python_and_back(store: entrepot.Store, pipe_run: PipeRun, tmp_path: Path) -> None:
    first, second = tmp_path / "first.sqlite", tmp_path / "second.sqlite"
    with sqlite3.connect(first) as database:
        database.execute("CREATE TABLE t (id INTEGER, name TEXT)")
        database.executemany("INSERT INTO t VALUES (?, ?)", [(i, f"a,{i}") for i in range(5000)])
    exporter = pipe_run(
        "--export", "db://rows", "--",
        "sqlite3", "-csv", "-header", str(first), ".output 'db://rows'", "SELECT * FROM t ORDER BY id",
    )  # fmt: skip
    with open_import("db://rows", store=store, timeout=WAIT) as reader:
        table = pa.Table.from_batches(list(reader))
    assert finish(exporter) == (0, "")
    assert table.to_pydict() == {"id": list(range(5000)), "name": [f"a,{i}" for i in range(5000)]}

    importer = pipe_run("--import", "db://back", "--", "sqlite3", str(second), ".mode csv", ".import 'db://back' t")
    with open_export("db://back", store=store, timeout=WAIT) as export:
        export.write(table)
    assert finish(importer) == (0, "")
    with sqlite3.connect(second) as database:
        assert database.execute("SELECT count(*), sum(id), max(name) FROM t").fetchone() == (
            5000,
            sum(range(5000)),
            "a,999",
        )


@needs_sqlite
def test_a_killed_exporter_leaves_no_rows_in_sqlite(
    store: entrepot.Store, pipe_run: PipeRun, spawn: Any, tmp_path: Path
) -> None:
    path = tmp_path / "data.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (id INTEGER)")
    database.close()
    importer = pipe_run("--import", "db://dies", "--", "sqlite3", str(path), ".mode csv", ".import 'db://dies' t")
    exporter = spawn(EXPORTER, "db://dies")
    assert exporter.stdout.readline() == "written\n"
    exporter.kill()
    code, output = finish(importer)
    assert code == 128 + signal.SIGTERM
    assert "db://dies: an exporter failed" in output
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (0,)
    database.close()


def test_a_failing_program_fails_its_importer(store: entrepot.Store, pipe_run: PipeRun) -> None:
    exporter = pipe_run("--export", "db://half", "--", "sh", "-c", "echo a,b > $0; exit 3", "db://half")
    reader = open_import("db://half", store=store, timeout=WAIT)
    with pytest.raises(StreamFailed, match="sh ended with exit code 3"):
        list(reader)
    assert finish(exporter) == (3, "")


def test_a_program_that_is_killed_fails_its_importer(store: entrepot.Store, pipe_run: PipeRun) -> None:
    exporter = pipe_run("--export", "db://shot", "--", "sh", "-c", "echo a,b > $0; kill -KILL $$", "db://shot")
    reader = open_import("db://shot", store=store, timeout=WAIT)
    with pytest.raises(StreamFailed, match="sh was ended by SIGKILL"):
        list(reader)
    assert finish(exporter)[0] == 128 + signal.SIGKILL


def test_a_program_that_never_opens_its_fifo(store: entrepot.Store, pipe_run: PipeRun) -> None:
    exporter = pipe_run("--export", "db://never", "--", "true")
    reader = open_import("db://never", store=store, timeout=WAIT)
    with pytest.raises(StreamFailed, match="ended without writing"):
        list(reader)
    code, output = finish(exporter)
    assert code == 1
    assert "ended without writing" in output


def test_a_program_that_reads_only_the_beginning(store: entrepot.Store, pipe_run: PipeRun) -> None:
    importer = pipe_run("--import", "db://head", "--", "head", "-n", "1", "db://head")
    export = open_export("db://head", store=store, timeout=WAIT)

    def write_on() -> None:
        for first in range(0, 100_000_000, 100_000):
            export.write(pa.record_batch({"id": list(range(first, first + 100_000))}))

    with pytest.raises(StreamFailed, match="an importer failed"):
        write_on()
    code, output = finish(importer)
    assert code == 1
    assert output.startswith("id\n")
    assert "ended before it had read all" in output


def test_fifos_of_several_workers(store: entrepot.Store, pipe_run: PipeRun, tmp_path: Path) -> None:
    script = "F=$ENTREPOT_PIPES_FOLDER\n"
    script += "for w in 0 1 2; do printf 'id\\n%d\\n' $w > $F/__reserved__m@workers=3.$w & done; wait"
    exporter = pipe_run("--folder", str(tmp_path / "f"), "--export", "db://m?workers=3", "--", "sh", "-c", script)
    with open_import("db://m", store=store, timeout=WAIT) as reader:
        assert sorted(i for batch in reader for i in batch["id"].to_pylist()) == [0, 1, 2]
    assert finish(exporter) == (0, "")
    assert os.listdir(tmp_path / "f") == []


@pytest.fixture(scope="module")
def psql() -> Iterator[list[str]]:
    """The command that runs psql in a database of its own."""
    try:
        with run_server() as server:
            server.create("pipes")
            host = server.url("pipes").rpartition("host=")[2]
            program = str(programs_folder() / "psql")
            yield [program, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", host, "-U", "airflow", "-d", "pipes", "-At"]
    except NoPostgres as error:
        pytest.skip(str(error))


def test_psql_to_python_and_back(store: entrepot.Store, pipe_run: PipeRun, psql: list[str]) -> None:
    query = "SELECT i AS id, i / 4.0::float8 AS x, CASE WHEN i % 2 = 0 THEN 'it''s \"' || i END AS s"
    copied = f"\\copy ({query} FROM generate_series(0, 9999) AS i) TO 'db://orders' WITH (FORMAT csv, HEADER)"
    exporter = pipe_run("--export", "db://orders", "--", *psql, "-c", copied)
    with open_import("db://orders", store=store, timeout=WAIT) as reader:
        table = pa.Table.from_batches(list(reader))
    assert finish(exporter) == (0, "")
    assert table.schema.types == [pa.int64(), pa.float64(), pa.string()]
    assert table.slice(4, 2).to_pylist() == [{"id": 4, "x": 1.0, "s": "it's \"4"}, {"id": 5, "x": 1.25, "s": None}]

    subprocess.run([*psql, "-c", "CREATE TABLE back (id bigint, x float8, s text)"], check=True)
    importer = pipe_run(
        "--import", "db://back", "--", *psql, "-c", "\\copy back FROM 'db://back' WITH (FORMAT csv, HEADER)"
    )
    with open_export("db://back", store=store, timeout=WAIT) as export:
        export.write(table)
    assert finish(importer) == (0, "")
    difference = f"({query} FROM generate_series(0, 9999) AS i) EXCEPT SELECT * FROM back"
    for statement, expected in (("SELECT count(*) FROM back", "10000"), (difference, "")):
        done = subprocess.run([*psql, "-c", statement], check=True, capture_output=True, text=True)
        assert done.stdout.strip() == expected


def test_a_killed_exporter_leaves_no_rows_in_postgres(
    store: entrepot.Store, pipe_run: PipeRun, psql: list[str], spawn: Any
) -> None:
    subprocess.run([*psql, "-c", "CREATE TABLE dies (id bigint)"], check=True)
    importer = pipe_run(
        "--import", "db://dies", "--", *psql, "-c", "\\copy dies FROM 'db://dies' WITH (FORMAT csv, HEADER)"
    )
    exporter = spawn(EXPORTER, "db://dies")
    assert exporter.stdout.readline() == "written\n"
    exporter.kill()
    code, output = finish(importer)
    assert code == 128 + signal.SIGTERM
    assert "an exporter failed" in output
    done = subprocess.run([*psql, "-c", "SELECT count(*) FROM dies"], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "0"


def test_duckdb_to_python_and_back(store: entrepot.Store, pipe_run: PipeRun, duckdb: str, tmp_path: Path) -> None:
    rows = "SELECT i AS id, CASE WHEN i % 2 = 0 THEN 'it''s, \"' || i END AS s FROM range(5000) r(i)"
    exporter = pipe_run("--export", "db://ducks", "--", duckdb, "-c", f"COPY ({rows}) TO 'db://ducks' (FORMAT csv)")
    with open_import("db://ducks", store=store, timeout=WAIT) as reader:
        table = pa.Table.from_batches(list(reader))
    assert finish(exporter) == (0, "")
    assert table["id"].to_pylist() == list(range(5000))

    path = str(tmp_path / "back.duckdb")
    subprocess.run([duckdb, path, "-c", "CREATE TABLE t (id BIGINT, s VARCHAR)"], check=True)
    importer = pipe_run("--import", "db://back", "--", duckdb, path, "-c", "COPY t FROM 'db://back' (FORMAT csv)")
    with open_export("db://back", store=store, timeout=WAIT) as export:
        export.write(table)
    assert finish(importer)[0] == 0
    assert duckdb_answer(duckdb, path, f"SELECT count(*) FROM ({rows} INTERSECT FROM t)") == "5000"


def duckdb_answer(duckdb: str, path: str, query: str) -> str:
    done = subprocess.run([duckdb, "-csv", "-noheader", path, "-c", query], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("COPY t FROM 'db://dies' (FORMAT csv)", marks=pytest.mark.exhaustive),
        pytest.param("CREATE TABLE u AS FROM read_csv('db://dies')", marks=pytest.mark.exhaustive),
        "BEGIN; INSERT INTO t VALUES (-1); COPY t FROM 'db://dies' (FORMAT csv); COMMIT",
    ],
)
def test_a_killed_exporter_leaves_no_rows_in_duckdb(
    store: entrepot.Store, pipe_run: PipeRun, duckdb: str, spawn: Any, tmp_path: Path, statement: str
) -> None:
    path = str(tmp_path / "data.duckdb")
    subprocess.run([duckdb, path, "-c", "CREATE TABLE t (id BIGINT)"], check=True)
    importer = pipe_run("--import", "db://dies", "--", duckdb, path, "-c", statement)
    exporter = spawn(EXPORTER, "db://dies")
    assert exporter.stdout.readline() == "written\n"
    exporter.kill()
    code, output = finish(importer)
    assert code in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert "an exporter failed" in output
    assert duckdb_answer(duckdb, path, "SELECT count(*) FROM t") == "0"
    assert duckdb_answer(duckdb, path, "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'u'") == "0"


READS_ALL = """
import sys, os
print("ready", flush=True)
with open(sys.argv[1], "rb") as file:
    while file.read(1 << 16):
        pass
open(sys.argv[2], "w").close()
"""


def test_a_killed_pipe_run_is_no_end_of_file(
    store: entrepot.Store, pipe_run: PipeRun, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    committed = tmp_path / "committed"
    words = ["--import", "db://guarded", "--", sys.executable, "-c", READS_ALL, "db://guarded", str(committed)]
    importer = pipe_run(*words)
    assert importer.stdout is not None
    assert importer.stdout.readline() == "ready\n"
    export = open_export("db://guarded", store=store, timeout=WAIT)
    export.write(pa.record_batch({"id": list(range(500_000))}))
    export.flush()
    importer.kill()
    # The program has the other end of this pipe: it is closed when that is dead.
    assert importer.stdout.read() == ""
    assert not committed.exists()

    def fails() -> bool:
        try:
            export.write(pa.record_batch({"id": [1]}))
            export.flush()
        except StreamFailed:
            return True
        return False

    wait_until(fails, "the exporter to be told")
