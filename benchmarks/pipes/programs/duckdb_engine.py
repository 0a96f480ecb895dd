"""DuckDB as an engine: tables in memory, by COPY."""

from __future__ import annotations

import sys

import duckdb

from benchmarks.pipes.programs.engine_loop import serve

connection = duckdb.connect()
connection.execute(f"CREATE TABLE source AS SELECT * FROM read_csv('{sys.argv[1]}')")


def export(name: str, header: bool) -> None:
    """Write the table, with a header."""
    connection.execute(f"COPY source TO '{name}' (FORMAT csv, HEADER)")


def take(name: str, header: bool) -> tuple[int, int]:
    """Read a table; its rows, and the sum of the first column."""
    connection.execute("CREATE OR REPLACE TABLE target AS SELECT * FROM source LIMIT 0")
    connection.execute(f"COPY target FROM '{name}' (FORMAT csv, HEADER {'true' if header else 'false'})")
    ((rows, total),) = connection.execute("SELECT count(*), sum(id)::BIGINT FROM target").fetchall()
    return rows, total


serve(export, take)
