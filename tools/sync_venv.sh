#!/usr/bin/env bash
# sync_venv.sh FOLDER LOCK: creates the virtual environment if it is missing, and installs exactly what the lock file
# names, checking hashes.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
lock=$2
uv=$(bash tools/find_uv.sh)
if [[ ! -x "$folder/bin/python" ]]; then
  python=$(bash tools/find_python.sh)
  "$uv" venv --quiet --python "${python:-3.11}" "$folder"
fi
echo "setup: installing $lock into $folder" >&2
"$uv" pip sync --quiet --python "$folder/bin/python" --require-hashes "$lock"
