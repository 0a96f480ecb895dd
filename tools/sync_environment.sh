#!/usr/bin/env bash
# sync_environment.sh NAME: creates .venv-NAME, an environment of the matrix of tests/environments, from its lock file.
# Leaves it out, and says so, for a Python for which the oldest of its packages have no wheels.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(bash tools/find_python.sh)
if ! "${python:-python3}" -c 'import sys; sys.exit(0 if sys.version_info[:2] in ((3, 11), (3, 12)) else 1)'; then
  echo "setup: .venv-$1 is left out: its packages have wheels for Python 3.11 and 3.12 only" >&2
  exit 0
fi
bash tools/sync_venv.sh ".venv-$1" "tests/environments/$1.lock"
bash tools/develop_install.sh ".venv-$1"
touch ".venv-$1/.developed"
