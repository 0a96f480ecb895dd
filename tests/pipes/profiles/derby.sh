# Derby exports a table and imports it: entrepot pipe learn rows.csv -- sh -e derby.sh
# CLASSPATH has Derby, and DerbyTable of tests/pipes/jvm/programs.
derby() { java -XX:TieredStopAtLevel=1 -Dderby.stream.error.file=/dev/null DerbyTable "$1" rows.csv; }
derby export
test "$(wc -l < rows.csv)" -eq 20000
test "$(derby import)" = '20000 9.9995E7'
