#!/bin/sh
# Reads the totals from a file: import.sh FILE
exec psql -X -q -v ON_ERROR_STOP=1 -c "\\copy totals FROM '$1' WITH (FORMAT csv, HEADER)"
