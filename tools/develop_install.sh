#!/usr/bin/env bash
# develop_install.sh FOLDER: installs the packages in editable mode, with metadata, console scripts and entry points,
# into the environment FOLDER. Nothing is compiled: tools/build.sh puts the extension and the daemon beside the sources.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$(bash tools/find_uv.sh)
"$uv" pip install --quiet --python "$1/bin/python" --no-build-isolation --no-deps \
  -C wheel.cmake=false -C wheel.py-api=py3 --editable .
