"""DuckDB as an engine: tables in memory, by COPY."""

import sys

import duckdb
from engine_loop import serve

connection = duckdb.connect()
connection.execute(f"CREATE TABLE source AS SELECT * FROM read_csv('{sys.argv[1]}')")


def export(name, header):
    connection.execute(f"COPY source TO '{name}' (FORMAT csv, HEADER)")


def take(name, header):
    connection.execute("CREATE OR REPLACE TABLE target AS SELECT * FROM source LIMIT 0")
    connection.execute(f"COPY target FROM '{name}' (FORMAT csv, HEADER {'true' if header else 'false'})")
    return connection.execute("SELECT count(*), sum(id)::BIGINT FROM target").fetchone()


serve(export, take)
