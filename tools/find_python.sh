#!/usr/bin/env bash
# Prints the path of the Python that the environments are made from: ENTREPOT_PYTHON, or the first of 3.11 to 3.13
# that the machine has, preferring one with its C headers. Prints nothing where there is none.
set -euo pipefail
headers='import os, sysconfig, sys
path = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(0 if os.path.exists(path) else 1)'
version='import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else 1)'
fallback=""
for name in ${ENTREPOT_PYTHON:-python3.11 python3.12 python3.13 python3}; do
  path=$(command -v "$name" 2>/dev/null) || continue
  "$path" -c "$version" 2>/dev/null || continue
  # Not an environment's link, which may be the very one that is to be made.
  path=$("$path" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')
  if "$path" -c "$headers"; then
    echo "$path"
    exit 0
  fi
  fallback=${fallback:-$path}
done
[[ -z "$fallback" ]] || echo "$fallback"
