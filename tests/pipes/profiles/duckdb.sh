# The library DuckDB exports a table and imports it: entrepot pipe learn rows.csv -- sh -e duckdb.sh
python - <<'PROGRAM'
import duckdb

connection = duckdb.connect()
connection.execute("CREATE TABLE t AS SELECT i, i * 0.5 AS x, 'a,\"' || i AS s FROM range(1000) r(i)")
connection.execute("COPY t TO 'rows.csv' (FORMAT csv, HEADER)")
connection.execute("CREATE TABLE u AS FROM t LIMIT 0")
connection.execute("COPY u FROM 'rows.csv' (FORMAT csv, HEADER)")
assert connection.sql("FROM u").fetchall() == connection.sql("FROM t").fetchall()
PROGRAM
