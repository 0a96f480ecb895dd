#!/usr/bin/env bash
# Builds the documentation in build/site, or the folder named, with .venv-docs. Warnings are errors, so no --quiet, which
# would hide them from --strict.
set -euo pipefail
cd "$(dirname "$0")/.."
# Modules of hooks are not looked for beside each other otherwise.
PYTHONPATH=tools NO_MKDOCS_2_WARNING=true \
  .venv-docs/bin/python -m mkdocs build --strict --site-dir "${1:-build/site}"
