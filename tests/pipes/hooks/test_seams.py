"""What seams understand, what they leave to text, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

DATA = {"id": [1, 2, 3], "x": [0.5, None, -2.25], "when": ["2024-01-01", "2024-01-02", "2024-01-03"], "s": list("uvw")}
FRAME = f"import pandas as pd\nframe = pd.DataFrame({DATA!r})\n"
# Columns alone: an end that sends or asks for text fails.
COLUMNS_ONLY = """
from entrepot_pipes import pipe
from entrepot_pipes.hooks import transfers
kept = pipe.open_export, pipe.open_import, transfers.Received.text
def only(opening):
    def checked(*args, form, **kwargs):
        assert form == "columns", form
        return opening(*args, form=form, **kwargs)
    return checked
pipe.open_export, pipe.open_import = only(kept[0]), only(kept[1])
transfers.Received.text = None
try:
    exec(PROGRAM)
finally:
    pipe.open_export, pipe.open_import, transfers.Received.text = kept
"""
PLAIN = {"id": [1, 2, 3], "x": [0.5, 1.25, -2.25], "s": ["abc", "def", "ghi"]}


def columns_only(program: str) -> str:
    """The program, which fails if its seam leaves anything to text."""
    return f"PROGRAM = {program!r}\n{COLUMNS_ONLY}"


@pytest.fixture
def run(transfer: Callable[..., Any], pipe_names: Callable[[], str]) -> Callable[..., str]:
    """Run two programs, both of which succeed; return what the reader printed."""

    def both(writer: str, reader: str, file: str = "") -> str:
        wrote, read = transfer(writer, reader, pipe_names() + file)
        assert (wrote.failed, read.failed) == ("", "")
        return str(read.printed)

    return both


WRITING = {
    "pandas": f"import pandas as pd\npd.DataFrame({PLAIN!r}).to_csv(NAME, index=False)",
    "polars": f"import polars as pl\npl.DataFrame({PLAIN!r}).write_csv(NAME)",
    "pyarrow": f"import pyarrow as pa, pyarrow.csv as c\nc.write_csv(pa.table({PLAIN!r}), NAME)",
    "duckdb": f"import duckdb, pyarrow as pa\nrows = pa.table({PLAIN!r})\n"
    "duckdb.sql(f\"COPY (FROM rows) TO '{NAME}' (HEADER, DELIMITER ',')\")",
    "relation": f"import duckdb, pyarrow as pa\nrows = pa.table({PLAIN!r})\nduckdb.sql('FROM rows').write_csv(NAME)",
}
READING = {
    "pandas": "import pandas as pd\nprint(pd.read_csv(NAME, usecols=['id', 's', 'x']).to_dict('list'))",
    "polars": "import polars as pl\nprint(pl.read_csv(NAME).to_dict(as_series=False))",
    "lazy": "import polars as pl\nprint(pl.scan_csv(NAME).collect().to_dict(as_series=False))",
    "pyarrow": "import pyarrow.csv as c\nprint(c.read_csv(NAME).to_pydict())",
    "duckdb": "import duckdb\nprint(duckdb.sql(f\"SELECT * FROM '{NAME}'\").to_arrow_table().to_pydict())",
    "method": "import duckdb\nprint(duckdb.connect().read_csv(NAME).to_arrow_table().to_pydict())",
    "copy": "import duckdb\nc = duckdb.connect()\nc.execute('CREATE TABLE t (id INTEGER, x DOUBLE, s VARCHAR)')\n"
    "print(c.execute(f\"COPY t FROM '{NAME}' (HEADER)\").fetchall() == [(3,)] and "
    "c.execute('FROM t').to_arrow_table().to_pydict())",
}


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        *((writer, "pyarrow") for writer in WRITING),
        *(("pyarrow", reader) for reader in READING),
    ],
)
def test_columns_travel_without_text(writer: str, reader: str, run: Callable[..., str]) -> None:
    assert run(columns_only(WRITING[writer]), columns_only(READING[reader])) == f"{PLAIN}\n"


@pytest.mark.parametrize(
    "call",
    [
        "pd.read_csv(NAME, dtype={'id': str})",
        "pd.read_csv(NAME, usecols=['x', 'id'])",
        "pd.read_csv(NAME, usecols=[0, 2])",
        "pd.read_csv(NAME, names=['a', 'b', 'c', 'd'], header=0)",
        "pd.read_csv(NAME, parse_dates=['when'])",
        "pd.read_csv(NAME, index_col='id', nrows=2)",
        "pd.read_csv(NAME, header=None)",
        "pd.read_csv(NAME, converters={'s': str.upper})",
        "pd.concat(pd.read_csv(NAME, chunksize=2))",
    ],
)
def test_options_of_read_csv_are_honoured(call: str, run: Callable[..., str], tmp_path: Any) -> None:
    report = f"d = {call}\nprint(d.dtypes.to_dict(), d.index.tolist(), d.to_dict('list'))"
    write = f"{FRAME}frame.to_csv(NAME, index=False)"
    assert run(write, f"import pandas as pd\n{report}") == run(
        "", f"{FRAME}NAME = {str(tmp_path / 'x.csv')!r}\nframe.to_csv(NAME, index=False)\n{report}"
    )


@pytest.mark.parametrize(
    "options", ["sep=';'", "index=False, sep='|'", "na_rep='-'", "columns=['s', 'id']", "header=False"]
)
def test_options_of_to_csv_are_honoured(options: str, run: Callable[..., str], tmp_path: Any) -> None:
    show = "print(open(NAME).read())"
    file = f"NAME = {str(tmp_path / 'x.csv')!r}\n"
    expected = run("", f"{FRAME}{file}frame.to_csv(NAME, {options})\n{show}")
    sep = options[5] if options.startswith("sep") else options[-2] if "sep" in options else ","
    read = f"import pandas as pd\nprint(pd.read_csv(NAME, sep={sep!r}).to_csv(sep={sep!r}))"
    assert run(f"{FRAME}frame.to_csv(NAME, {options})", read) == run(
        "", f"{FRAME}{file}frame.to_csv(NAME, {options})\n{read}"
    )
    if "sep" not in options:
        assert run(f"{FRAME}frame.to_csv(NAME, {options})", show) == expected


PARQUET_WRITERS = {
    "pandas": f"{FRAME}frame.to_parquet(NAME)",
    "polars": f"import polars as pl\npl.DataFrame({DATA!r}).write_parquet(NAME)",
    "pyarrow": f"import pyarrow as pa, pyarrow.parquet as pq\npq.write_table(pa.table({DATA!r}), NAME)",
    "duckdb": f"import duckdb, pyarrow as pa\nrows = pa.table({DATA!r})\n"
    "duckdb.sql(f\"COPY rows TO '{NAME}' (FORMAT parquet)\")",
}
PARQUET_READERS = {
    "pandas": "import pandas as pd\nd = pd.read_parquet(NAME).to_dict('list')",
    "polars": "import polars as pl\nd = pl.read_parquet(NAME).to_dict(as_series=False)",
    "lazy": "import polars as pl\nd = pl.scan_parquet(NAME).collect().to_dict(as_series=False)",
    "filtered": "import pandas as pd\nd = pd.read_parquet(NAME, filters=[('id', '>', 0)]).to_dict('list')",
    "pyarrow": "import pyarrow.parquet as pq\nd = pq.read_table(NAME).to_pydict()",
    "duckdb": "import duckdb\nd = duckdb.sql(f\"FROM read_parquet('{NAME}')\").to_arrow_table().to_pydict()",
}


@pytest.mark.parametrize(
    ("writer", "reader"),
    [*((writer, "pyarrow") for writer in PARQUET_WRITERS), *(("pandas", reader) for reader in PARQUET_READERS)],
)
def test_parquet_files_are_columns(writer: str, reader: str, run: Callable[..., str]) -> None:
    read = PARQUET_READERS[reader] + "\nd['x'] = [v if v == v else None for v in d['x']]\nprint(d)"
    assert run(PARQUET_WRITERS[writer], read) == f"{DATA}\n"


def test_json_travels_as_text(run: Callable[..., str]) -> None:
    lines = run(
        f"{FRAME}frame.to_json(NAME, orient='records', lines=True)",
        "import pandas as pd\nprint(pd.read_json(NAME, lines=True).id.tolist())",
    )
    assert lines == "[1, 2, 3]\n"
    whole = run(
        "import json\nwith open(NAME, 'w') as f:\n    json.dump([{'a': 2**60}], f)",
        "import json\nprint(json.load(open(NAME)))",
    )
    assert whole == f"{[{'a': 2**60}]}\n"


def test_what_duckdb_writes_and_reads_otherwise_is_text(run: Callable[..., str]) -> None:
    write = """
import duckdb
duckdb.sql(f"COPY (SELECT DATE '2024-01-02' AS d, 1 AS i) TO '{NAME}' (HEADER, DELIMITER '|', QUOTE '~')")
"""
    read = """
import duckdb
print(duckdb.execute(f"FROM read_csv('{NAME}', delim='|', types={{'i': 'VARCHAR'}})").fetchall())
"""
    assert run(write, read) == "[(datetime.date(2024, 1, 2), '1')]\n"
    copy = "import duckdb\nc = duckdb.connect()\nc.execute('CREATE TABLE t (d DATE, i DECIMAL(5, 2))')\n"
    copy += "c.execute(f\"COPY t FROM '{NAME}' (HEADER)\")\nprint(c.sql('FROM t').fetchall())"
    assert run("open(NAME, 'w').write('d,i\\n2024-01-02,1.5\\n')", copy) == (
        "[(datetime.date(2024, 1, 2), Decimal('1.50'))]\n"
    )


def test_duckdb_finds_the_variables_of_the_program(run: Callable[..., str]) -> None:
    program = """
import duckdb, pyarrow as pa
def inner():
    local = pa.table({"a": [1]})
    return duckdb.sql("FROM local").fetchall(), duckdb.connect().execute("SELECT a + ? FROM local", [1]).fetchall()
print(inner())
"""
    assert run("", program) == "([(1,)], [(2,)])\n"


def test_files_can_be_read_again_from_the_beginning(run: Callable[..., str]) -> None:
    read = """
import csv
file = open(NAME, newline="")
dialect = csv.Sniffer().sniff(file.read(64))
file.seek(0)
print(list(csv.reader(file, dialect)))
"""
    assert run("open(NAME, 'w').write('a;b\\n1;2\\n3;4\\n')", read) == "[['a', 'b'], ['1', '2'], ['3', '4']]\n"


def test_reserved_files_in_a_folder(hosts: Callable[[str], Any], tmp_path: Any) -> None:
    name = str(tmp_path / "__reserved__folder-test.csv")
    writer, reader = hosts("folder writer"), hosts("folder reader")
    setting = f"import os\nos.environ['ENTREPOT_PIPES_FOLDER'] = {str(tmp_path)!r}\nNAME = {name!r}\n"
    writer.begin(f"{setting}{FRAME}frame.to_csv(NAME, index=False)")
    reader.begin(f"{setting}import pandas as pd\nprint(pd.read_csv(NAME).id.tolist())")
    wrote, read = writer.end(), reader.end()
    assert (wrote.failed, read.failed, read.printed) == ("", "", "[1, 2, 3]\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("open(NAME, 'a')", "to append or to change"),
        ("open(NAME, 'r+b')", "to append or to change"),
        ("import pandas as pd\npd.DataFrame({'a': [1]}).to_csv(NAME, mode='a')", "to append or to change"),
        ("import pandas as pd\npd.DataFrame({'a': [1]}).to_parquet(NAME, partition_cols=['a'])", "leave it out"),
        ("import fsspec\nfsspec.filesystem('db').size(NAME)", "whose size nobody knows"),
    ],
)
def test_what_no_pipe_does_is_refused(
    program: str, message: str, hosts: Callable[[str], Any], pipe_names: Callable[[], str]
) -> None:
    host = hosts("writer")
    host.begin(f"NAME = {pipe_names()!r}\n{program}")
    assert message in host.end().failed


def test_seeking_to_the_end_is_refused(transfer: Callable[..., Any], pipe_names: Callable[[], str]) -> None:
    write, read = "open(NAME, 'w').write('a\\n1\\n')", "f = open(NAME, 'rb')\nf.read(1)\nf.seek(0, 2)"
    _, outcome = transfer(write, read, pipe_names())
    assert "has no end yet" in outcome.failed


@pytest.mark.parametrize(
    "writer",
    [
        "with open(NAME, 'w') as f:\n    f.write('a\\n1\\n')\n    raise RuntimeError('broken on purpose')",
        "f = open(NAME, 'w')\nf.write('a\\n1\\n')\nraise RuntimeError('broken on purpose')",
        "f = open(NAME, 'wb')\nf.write(b'a\\n1\\n')\nf.flush()\nraise RuntimeError('broken on purpose')",
    ],
)
@pytest.mark.parametrize("reader", ["print(open(NAME).read())", "import pandas as pd\nprint(pd.read_csv(NAME))"])
def test_a_program_that_fails_leaves_no_short_table(
    writer: str, reader: str, transfer: Callable[..., Any], pipe_names: Callable[[], str]
) -> None:
    _, read = transfer(writer, reader, pipe_names())
    assert "broken on purpose" in read.failed
    assert read.printed == ""


DASK_WRITES = "import pandas as pd\npd.DataFrame({'id': range(1000), 's': ['a,b'] * 1000}).to_csv(NAME, index=False)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "partitions"), [("", 1), (", blocksize='8KiB', dtype={'id': 'int32'}", 8), (", blocksize=None", 1)]
)
def test_dask_computes_several_times(run: Callable[..., str], options: str, partitions: int) -> None:
    pytest.importorskip("dask.dataframe")
    printed = run(
        DASK_WRITES,
        f"import dask.dataframe as dd\nd = dd.read_csv(NAME{options})\nassert len(d) == 1000, len(d)\n"
        "assert d.s.compute().tolist() == ['a,b'] * 1000\n"
        "print(d.npartitions, d.id.sum().compute(), d.columns.tolist())",
    )
    count, total, columns = printed.split(maxsplit=2)
    assert (int(count) > 1) == (partitions > 1)
    assert (total, columns.strip()) == ("499500", "['id', 's']")


def test_what_dask_cannot_ask_of_a_pipe(hosts: Callable[[str], Any]) -> None:
    pytest.importorskip("dask.dataframe")
    host = hosts("reader")
    host.begin("import dask.dataframe as dd\ndd.read_csv('db://never', include_path_column=True)")
    assert "include_path_column is not supported: a pipe has no path" in host.end().failed
