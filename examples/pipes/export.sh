#!/bin/sh
# Writes the orders to a file: export.sh FILE
exec psql -X -q -v ON_ERROR_STOP=1 -c "\\copy (SELECT * FROM orders ORDER BY id) TO '$1' WITH (FORMAT csv, HEADER)"
