"""``verify=``: whole transfers pass, and a planted fault on each way that data takes is found, with both values."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pytest
from entrepot.errors import InvalidArgument, StreamFailed
from entrepot_pipes import Dialect, open_export, open_import
from entrepot_pipes.export_end import Export
from entrepot_pipes.text.csv_parser import CsvParser
from entrepot_pipes.text.writer import TextWriter
from entrepot_pipes.verification import VerificationFailed

WAIT = 60.0
TEXT = b"id,name,x\n" + b"".join(
    b"%d,%s,%s\n" % (i, b'"a,b\n""q"""' if i % 7 == 0 else b"n\xc3\xa9" if i % 5 else b"", b"%d.5" % i)
    for i in range(1000)
)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


@pytest.fixture
def leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The files of verification that are there."""
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda: [path.name for path in tmp_path.glob("entrepot-verify-*")]


Run = Callable[..., tuple[Any, "BaseException | None"]]


@pytest.fixture
def run(store: entrepot.Store, pool: ThreadPoolExecutor) -> Run:
    """Send text or a table; return what the importer got, and the error of the exporter."""

    def both(
        sent: bytes | pa.Table, form: Any, verify: int = 50, dialect: Dialect | None = None, ended: str = "import"
    ) -> tuple[Any, BaseException | None]:
        names = {"export": "db://v", "import": "db://v"}
        names[ended] += f"?verify={verify}"

        def write() -> None:
            kind: Any = "text" if isinstance(sent, bytes) else "columns"
            with open_export(names["export"], store=store, form=kind, timeout=WAIT) as export:
                if isinstance(sent, bytes):
                    for start in range(0, len(sent), 5000):
                        export.write_text(sent[start : start + 5000])
                else:
                    export.write(sent)

        written = pool.submit(write)
        try:
            with open_import(names["import"], store=store, form=form, dialect=dialect, timeout=WAIT) as reader:
                got = reader.read_text() if form == "text" else pa.Table.from_batches(list(reader))
        finally:
            error = written.exception(WAIT)
        return got, error

    return both


OTHER = Dialect(delimiter="|", nulls=("\\N",), newline="\r\n")
TABLE = pa.table(
    {
        "i": pa.array([1, None, -(2**63)]),
        "x": [1e-5, float("nan"), 2.0],
        "b": [True, False, None],
        "s": ["", "a|b", 'q"\n'],
        "t": pa.array([0, 1, None], pa.timestamp("us")),
        "l": [[1], [], None],
    }
)


@pytest.mark.parametrize("ended", ["export", "import"])
@pytest.mark.parametrize(
    ("sent", "form", "dialect"),
    [
        (TEXT, "text", None),
        (TEXT, "text", OTHER),
        (TEXT, "columns", None),
        (b'{"a": 1, "s": "x"}\n{"a": 9007199254740993, "s": null}\n', "columns", None),
        (b'[{"a": [1, 2]}, {"a": []}]', "columns", None),
        (b"a\n1\n\n3\n", "columns", None),
        (b"id\n", "columns", None),
        (TABLE, "columns", None),
        (TABLE, "text", OTHER),
        (TABLE.slice(0, 0), "columns", None),
    ],
)
def test_what_is_whole_passes(
    sent: Any, form: str, dialect: Any, ended: str, run: Run, leftovers: Callable[[], list[str]]
) -> None:
    expected, _ = run(sent, form, verify=0, dialect=dialect)
    got, error = run(sent, form, dialect=dialect, ended=ended)
    assert error is None
    assert str(got) == str(expected)
    assert leftovers() == []


def test_columns_read_from_text(run: Run, monkeypatch: pytest.MonkeyPatch, leftovers: Any) -> None:
    read = CsvParser._read

    def faulty(self: CsvParser, block: bytes, columns: list[str], types: Any, only: Any = None) -> pa.RecordBatch:
        return read(self, block.replace(b"3.5\n", b"3.25\n", 1), columns, types, only)

    monkeypatch.setattr(CsvParser, "_read", faulty)
    with pytest.raises(VerificationFailed, match=r"row 4, column 'x' differs: 3\.25 by pipe, '3\.5' by file"):
        run(TEXT, "columns")
    assert leftovers() == []


def test_text_written_from_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write = TextWriter.write
    monkeypatch.setattr(TextWriter, "write", lambda self, batch: write(self, batch).replace(b"3|", b"4|", 1))
    with pytest.raises(VerificationFailed, match=r"row 4, column 'id' differs: '4' by pipe, '3' by file"):
        run(TEXT, "text", dialect=OTHER)


def test_bytes_that_pass_as_they_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put = Export._put

    def faulty(self: Export, chunk: Any) -> None:
        if isinstance(chunk, dict) and isinstance(chunk.get("sampled"), bytes):
            chunk = {**chunk, "sampled": chunk["sampled"].replace(b"3.5\n", b"3,5\n", 1)}
        put(self, chunk)

    monkeypatch.setattr(Export, "_put", faulty)
    with pytest.raises(VerificationFailed, match=r"'3,n\xe9,3,5' by pipe, '3,n\xe9,3\.5' by file"):
        run(TEXT, "text")


def test_columns_on_their_way(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    put = Export._put

    def faulty(self: Export, chunk: Any) -> None:
        if isinstance(chunk, dict) and "sampled" in chunk:
            batch = chunk["sampled"]
            chunk = {**chunk, "sampled": batch.set_column(0, "i", pa.array([1, 5, -(2**63)]))}
        put(self, chunk)

    monkeypatch.setattr(Export, "_put", faulty)
    with pytest.raises(VerificationFailed, match=r"row 2, column 'i' differs: 5 by pipe, '' by file"):
        run(TABLE, "columns")


def test_the_exporter_is_told(store: entrepot.Store, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    write = TextWriter.write
    monkeypatch.setattr(TextWriter, "write", lambda self, batch: write(self, batch).replace(b"1", b"2"))
    export = open_export("db://told?verify=5", store=store, timeout=WAIT)

    def read() -> bytes:
        with open_import("db://told", store=store, form="text", timeout=WAIT) as reader:
            return reader.read_text()

    got = pool.submit(read)

    def write_on() -> None:
        for _ in range(1000):
            export.write(pa.record_batch({"a": [1] * 100_000}))

    with pytest.raises(StreamFailed, match="row 1, column 'a' differs: '2' by pipe, '1' by file"):
        write_on()
    assert isinstance(got.exception(WAIT), VerificationFailed)


SEAM_FAULTS = {
    "pandas": ("pandas_seam._as_table", "import pandas as pd\npd.DataFrame(DATA).to_csv(NAME, index=False)"),
    "polars": ("polars_seam._as_table", "import polars as pl\npl.DataFrame(DATA).write_csv(NAME)"),
}
SEAM = """
import sys
from entrepot_pipes.hooks import {module} as seam
DATA, NAME = {{"id": [1, 2, 3], "s": ["abc", "def", "ghi"]}}, sys.argv[1]
own = seam.{function}
def faulty(*args, **kwargs):
    table = own(*args, **kwargs)
    return table.set_column(0, table.schema.field(0), [[1, 20, 3]])
seam.{function} = faulty
{write}
"""


@pytest.mark.parametrize("library", SEAM_FAULTS)
def test_what_a_seam_gives(library: str, store: entrepot.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from entrepot_pipes.hooks.environment import hooked_environment

    pytest.importorskip("wrapt")
    place, write = SEAM_FAULTS[library]
    module, _, function = place.partition(".")
    code = SEAM.format(module=module, function=function, write=write)
    import os

    writer = subprocess.Popen([sys.executable, "-c", code, "db://seam"], env=hooked_environment(dict(os.environ)))
    try:
        with (
            pytest.raises(VerificationFailed, match=r"row 2, column 'id' differs: 20 by pipe, '2' by file"),
            open_import("db://seam?verify=10", store=store, timeout=WAIT) as reader,
        ):
            list(reader)
    finally:
        writer.wait(WAIT)


def test_a_full_disk_is_said(run: Run, leftovers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StreamFailed, match=r"verify: rows from 1 on cannot be written.*No space left"):
        run(TEXT, "columns")
    assert leftovers() == []


def test_bad_numbers_of_rows(store: entrepot.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="verify=some"):
        open_export("db://x?verify=some", store=store)
    monkeypatch.setenv("ENTREPOT_PIPE_VERIFY", "-1")
    with pytest.raises(InvalidArgument, match="ENTREPOT_PIPE_VERIFY"):
        open_export("db://x", store=store)


def test_a_reader_may_stop_early_if_its_name_says_so(store: entrepot.Store, pool: ThreadPoolExecutor) -> None:
    def write() -> str:
        with open_export("db://limit", store=store, timeout=WAIT) as export:
            for start in range(0, 30_000_000, 300_000):
                export.write(pa.record_batch({"id": np.arange(start, start + 300_000)}))
        return "whole"

    written = pool.submit(write)
    with open_import("db://limit?early_end=true", store=store, timeout=WAIT) as reader:
        assert next(reader)["id"][0].as_py() == 0
    assert written.result(WAIT) == "whole"
    assert store.status()["streams"] == []
