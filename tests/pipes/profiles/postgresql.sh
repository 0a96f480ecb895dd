# psql exports a table and imports it: entrepot pipe learn rows.csv -- sh -e postgresql.sh
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"; }
sql "DROP TABLE IF EXISTS t, u"
sql "CREATE TABLE t AS SELECT i, i / 2.0::float8 AS x, CASE WHEN i % 2 = 0 THEN 'a,\"' || i END AS s
    FROM generate_series(0, 999) AS i"
sql "CREATE TABLE u (LIKE t)"
sql "\\copy t TO 'rows.csv' WITH (FORMAT csv, HEADER)"
sql "\\copy u FROM 'rows.csv' WITH (FORMAT csv, HEADER)"
test "$(sql 'SELECT count(*) FROM u')" = 1000
test -z "$(sql 'SELECT * FROM t EXCEPT SELECT * FROM u')"
