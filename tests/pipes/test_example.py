"""``examples/pipes``: its scripts, unmodified, in a database of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import entrepot
import pytest
from postgres_server import NoPostgres, programs_folder, run_server

WAIT = 100.0
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipes"
TABLES = "CREATE TABLE orders (id int, customer text, amount float8);"
TABLES += "CREATE TABLE totals (customer text, amount float8)"
ROWS = "INSERT INTO orders SELECT i, 'customer ' || i % 100, i / 4.0 FROM generate_series(1, 20000) AS i"
DIFFERENCE = "SELECT customer, sum(amount) FROM orders GROUP BY customer EXCEPT SELECT * FROM totals"


def test_postgres_to_pandas_and_back(store: entrepot.Store) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("wrapt")
    try:
        with run_server() as server:
            server.create("shop")
            environment = {
                **os.environ,
                "PATH": f"{programs_folder()}:{os.environ['PATH']}",
                "PGHOST": server.url("shop").rpartition("host=")[2],
                "PGUSER": "airflow",
                "PGDATABASE": "shop",
                "PYTHON": sys.executable,
                "ENTREPOT": f"{sys.executable} -m entrepot.cli",
                "ENTREPOT_PIPE_TIMEOUT": "60",
            }

            def psql(statement: str) -> str:
                words = ["psql", "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-c", statement]
                return subprocess.run(
                    words, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=WAIT
                ).stdout

            psql(TABLES)
            psql(ROWS)
            done = subprocess.run(
                ["sh", EXAMPLE / "run.sh"], env=environment, capture_output=True, text=True, timeout=WAIT
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert psql("SELECT count(*) FROM totals").strip() == "100"
            assert psql(DIFFERENCE) == ""
    except NoPostgres as error:
        pytest.skip(str(error))
