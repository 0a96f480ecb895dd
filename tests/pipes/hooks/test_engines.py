"""Every library hands tables to every other one, with the answers of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WRITERS = {
    "pandas": "import pandas as pd\npd.DataFrame(DATA).to_csv(NAME, index=False)",
    "polars": "import polars as pl\npl.DataFrame(DATA).write_csv(NAME)",
    "pyarrow": "import pyarrow as pa, pyarrow.csv as c\nc.write_csv(pa.table(DATA), NAME)",
    "duckdb": "import duckdb, pyarrow as pa\nrows = pa.table(DATA)\n"
    "duckdb.connect().execute(f\"COPY (FROM rows) TO '{NAME}' (FORMAT csv, HEADER)\")",
    "csv": "import csv\nwith open(NAME, 'w', newline='') as f:\n    w = csv.writer(f)\n    w.writerow(DATA)\n"
    "    w.writerows(zip(*DATA.values()))",
}
READERS = {
    "pandas": "import pandas as pd\nd = pd.read_csv(NAME)\nprint(d.dtypes.to_dict(), d.to_dict('list'))",
    "polars": "import polars as pl\nd = pl.read_csv(NAME)\nprint(d.schema, d.to_dict(as_series=False))",
    "pyarrow": "import pyarrow.csv as c\nd = c.read_csv(NAME)\nprint(d.schema, d.to_pydict())",
    "duckdb": "import duckdb\nd = duckdb.sql(f\"FROM read_csv('{NAME}')\")\nprint(d.columns, d.types, d.fetchall())",
    "csv": "import csv\nwith open(NAME, newline='') as f:\n    print(list(csv.reader(f)))",
}
TABLES = {
    # Goes as columns wherever both ends have them.
    "plain": {"id": [1, 2**53 + 1, -3], "x": [0.1, 1.5, -2.25], "s": ["abc", "d,e f", 'quo"te é']},
    # What programs take for something else when they read it as text.
    "odd": {
        "id": [1, 2, None],
        "z": ["007", "008", "1"],
        "e": ["", "NA", None],
        "b": [True, False, True],
        "d": ["2024-01-01", "2024-01-02", "2024-01-03"],
        "w": [1.0, 2.0, 3.0],
    },
}


def on(host: Any, name: str, data: object, code: str) -> str:
    """Run a program alone, and return what it prints."""
    host.begin(f"NAME, DATA = {name!r}, {data!r}\n{code}")
    outcome = host.end()
    assert not outcome.failed, outcome.failed
    return str(outcome.printed)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_answers_are_those_of_a_file(
    writer: str, reader: str, hosts: Callable[[str], Any], tmp_path: Path, pipe_names: Callable[[], str]
) -> None:
    writing, reading = hosts(f"{writer} writes"), hosts(f"{reader} reads")
    for kind, data in TABLES.items():
        file = str(tmp_path / f"{kind}.csv")
        on(writing, file, data, WRITERS[writer])
        expected = on(reading, file, data, READERS[reader])

        name = pipe_names()
        writing.begin(f"NAME, DATA = {name!r}, {data!r}\n{WRITERS[writer]}")
        reading.begin(f"NAME = {name!r}\n{READERS[reader]}")
        wrote, read = writing.end(), reading.end()
        assert (wrote.failed, read.failed) == ("", "")
        assert read.printed == expected, kind
