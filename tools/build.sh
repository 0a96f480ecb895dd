#!/usr/bin/env bash
# build.sh PRESET TARGET [JOBS]: builds `product`, `all` or another target incrementally. With the preset dev, it also
# puts the extensions and the daemon beside the Python sources, where an editable installation finds them. Files are
# replaced, not overwritten, so running daemons and loaded extensions keep the old ones. With UNITY_BUILD=1 in the
# environment, up to 32 sources are compiled as one, as in wheels: half of the CPU time of a build from scratch.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
what=$2
jobs=${3:-$(nproc)}
log=build/$preset-configure.log
mkdir -p build
options=()
[[ "${UNITY_BUILD:-}" != 1 ]] || options=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=32)
if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
grep -E "^-- Entrepot" "$log" || true
[[ -d "build/$preset/core" ]] || echo "build: compiling $what ($preset), which takes minutes the first time"
cmake --build "build/$preset" --target "$what" -j "$jobs" -- --quiet
if [[ "$preset" == dev ]]; then
  cmake --install build/dev --component python --prefix core/python >/dev/null
  cmake --install build/dev --component ucx --prefix cluster >/dev/null
fi
