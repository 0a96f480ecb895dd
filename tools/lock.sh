#!/usr/bin/env bash
# Resolves the lock files anew: hashes for every file, no address of any index.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$(bash tools/find_uv.sh)
options=(--quiet --generate-hashes --no-emit-index-url --no-emit-find-links --universal --python-version 3.11
  --custom-compile-command "make lock" "$@")
"$uv" pip compile "${options[@]}" --all-extras --group dev -o requirements.lock pyproject.toml
echo 'pandas>=2.2,<3' | "$uv" pip compile "${options[@]}" --group build --group test -o requirements-pandas2.lock - pyproject.toml
