#!/usr/bin/env bash
# Resolves the lock files again, with hashes for every file and without index URLs.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$(bash tools/find_uv.sh)
options=(--quiet --generate-hashes --no-emit-index-url --no-emit-find-links --universal
  --custom-compile-command "make lock" "$@")
extras=(--extra airflow --extra airflow-k8s --extra dagster --extra dagster-k8s --extra kedro --extra kubernetes \
  --extra checkpoints --extra s3 --extra policy --extra operator --extra cluster \
  --extra ui --extra top --extra cli --extra traces) # not torch: GBs
"$uv" pip compile "${options[@]}" --python-version 3.11 "${extras[@]}" --group dev -o requirements.lock pyproject.toml
echo 'pandas>=2.2,<3' | "$uv" pip compile "${options[@]}" --python-version 3.11 --group build --group test \
  -o requirements-pandas2.lock - pyproject.toml
# Environments with other versions of the packages that codecs support: see tests/environments.
for packages in tests/environments/*.in; do
  "$uv" pip compile "${options[@]}" --python-version 3.11 -o "${packages%.in}.lock" "$packages" pyproject.toml
done
# Plasma's own client.
"$uv" pip compile "${options[@]}" --python-version 3.11 -o tests/plasma/stock_client.lock tests/plasma/stock_client.in
# PySpark.
"$uv" pip compile "${options[@]}" --python-version 3.11 -o tests/pipes/jvm/spark.lock tests/pipes/jvm/spark.in
# Requirements of wheel builds, separate because they include a compiler.
"$uv" pip compile "${options[@]}" --python-version 3.10 --group wheel -o requirements-wheel.lock
# The documentation's site.
"$uv" pip compile "${options[@]}" --python-version 3.11 --group docs -o requirements-docs.lock
