# DuckDB's program exports a table and imports it: entrepot pipe learn rows.csv -- sh -e duckdb-cli.sh
sql() { duckdb -csv -noheader tables.duckdb -c "$1"; }
rm -f tables.duckdb
sql "CREATE TABLE t AS SELECT i, i * 0.5 AS x, CASE WHEN i % 2 = 0 THEN 'a,\"' || i END AS s FROM range(1000) r(i)"
sql "CREATE TABLE u AS FROM t LIMIT 0"
sql "COPY t TO 'rows.csv' (FORMAT csv, HEADER)"
sql "COPY u FROM 'rows.csv' (FORMAT csv, HEADER)"
test "$(sql 'SELECT count(*) FROM u')" = 1000
test "$(sql 'SELECT count(*) FROM (FROM t EXCEPT FROM u)')" = 0
