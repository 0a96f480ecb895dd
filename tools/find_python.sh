#!/usr/bin/env bash
# Prints the path of the Python for the virtual environments: ENTREPOT_PYTHON, or the machine's first of 3.11 to 3.13,
# preferably one with its C headers. Prints nothing if there is none.
set -euo pipefail
headers='import os, sysconfig, sys
path = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(0 if os.path.exists(path) else 1)'
version='import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else 1)'
fallback=""
for name in ${ENTREPOT_PYTHON:-python3.11 python3.12 python3.13 python3}; do
  path=$(command -v "$name" 2>/dev/null) || continue
  "$path" -c "$version" 2>/dev/null || continue
  # Resolve an environment's link, which might be in the very environment that is about to be created.
  path=$("$path" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')
  if "$path" -c "$headers"; then
    echo "$path"
    exit 0
  fi
  fallback=${fallback:-$path}
done
[[ -z "$fallback" ]] || echo "$fallback"
