# SQLite's program exports a table and imports it: entrepot pipe learn rows.csv -- sh -e sqlite.sh
rm -f tables.sqlite
sqlite3 tables.sqlite "CREATE TABLE t(i INTEGER, x REAL, s TEXT); CREATE TABLE u(i INTEGER, x REAL, s TEXT);
    WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM n WHERE i < 999)
    INSERT INTO t SELECT i, i * 0.5, 'a,\"' || i FROM n"
sqlite3 tables.sqlite ".mode csv" ".headers on" ".once rows.csv" "SELECT * FROM t"
test "$(wc -l < rows.csv)" -eq 1001
sqlite3 tables.sqlite ".import --csv --skip 1 rows.csv u"
test "$(sqlite3 tables.sqlite 'SELECT count(*) FROM u')" = 1000
test -z "$(sqlite3 tables.sqlite 'SELECT * FROM t EXCEPT SELECT * FROM u')"
