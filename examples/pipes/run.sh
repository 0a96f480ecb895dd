#!/bin/sh
# PostgreSQL to pandas and back, without a file: the three programs run at the same time.
set -eu
cd "$(dirname "$0")"
entrepot=${ENTREPOT:-entrepot}
python=${PYTHON:-python3}

$entrepot pipe run --export db://orders -- sh export.sh db://orders &
export=$!
$entrepot pipe run -- "$python" totals.py db://orders db://totals &
totals=$!
$entrepot pipe run --import db://totals -- sh import.sh db://totals
wait $export
wait $totals
