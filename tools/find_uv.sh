#!/usr/bin/env bash
# Prints the path of uv; installs it into .tools/ if the machine has none.
set -euo pipefail
cd "$(dirname "$0")/.."
if uv --version >/dev/null 2>&1; then
  command -v uv
  exit 0
fi
if [[ ! -x .tools/bin/uv ]]; then
  echo "setup: uv not found; installing it into .tools/" >&2
  "${ENTREPOT_PYTHON:-python3}" -m venv .tools
  .tools/bin/python -m pip install --quiet --disable-pip-version-check 'uv==0.13.8' >&2
fi
echo "$PWD/.tools/bin/uv"
