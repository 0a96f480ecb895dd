#!/usr/bin/env bash
# fuzz.sh [TARGET ...]: runs the targets of core/fuzz with libFuzzer and those of tests/fuzz (py_*) with Atheris, each
# for ENTREPOT_FUZZ_SECONDS (60). Inputs are its seeds, earlier findings (core/fuzz/corpus/TARGET, tests/fuzz/found) and
# the corpus of earlier runs (build/fuzz/corpus). Inputs that crash a target are left in build/fuzz/found; once fixed,
# add them to core/fuzz/corpus/TARGET or tests/fuzz/found, which the tests replay.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${ENTREPOT_FUZZ_SECONDS:-60}
jobs=${JOBS:-$(nproc)}
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  for source in core/fuzz/*_fuzz.cpp; do
    name=$(basename "$source")
    targets+=("${name%_fuzz.cpp}")
  done
  targets+=(py_manifest py_tree py_declaration py_reference)
fi
python_targets=()
native=()
for target in "${targets[@]}"; do
  if [[ $target == py_* ]]; then python_targets+=("${target#py_}"); else native+=("$target"); fi
done
targets=("${native[@]}")

build_native() {
  # The first clang with libFuzzer, which is a separate package.
  compiler=""
  for candidate in ${ENTREPOT_CLANG:-clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14}; do
    if echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
      "$candidate" -fsanitize=fuzzer,address,undefined -x c++ - -o /dev/null 2>/dev/null; then
      compiler=$candidate
      break
    fi
  done
  if [[ -z "$compiler" ]]; then
    echo "fuzz: no clang++ with libFuzzer found. On Debian or Ubuntu: apt-get install clang-19 libclang-rt-19-dev" >&2
    echo "fuzz: (or 14, 16). For another compiler, set ENTREPOT_CLANG=/path/to/clang++. Without libFuzzer," >&2
    echo "fuzz: ctest -R fuzz_ replays the seeds, mutations of them and earlier findings." >&2
    exit 1
  fi

  log=build/fuzz-configure.log
  if ! cmake --preset fuzz -DCMAKE_CXX_COMPILER="$compiler" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
  fi
  cmake --build build/fuzz -j "$jobs" --target "${targets[@]/#/fuzz_}" "${targets[@]/#/replay_}" -- --quiet
}

mkdir -p build/fuzz/found
if [[ ${#targets[@]} -gt 0 ]]; then build_native; fi
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
failed=()
run_python() {
  local uv site=build/fuzz/atheris path name corpus
  if [[ ! -d $site ]]; then
    uv=$(bash tools/find_uv.sh)
    "$uv" pip install --quiet --python .venv/bin/python --target "$site" atheris==3.0.0
  fi
  path=$site:tests/fuzz:core/python:io_managers
  path+=:$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  for name in "$@"; do
    corpus=build/fuzz/corpus/py_$name
    mkdir -p "$corpus"
    echo "== py_$name, $seconds s"
    report=build/fuzz/py_$name.log
    # -S: Atheris cannot instrument modules imported by an editable installation's finder.
    if ! PYTHONPATH=$path .venv/bin/python -S tests/fuzz/fuzz_python.py "$name" "$corpus" \
      -max_total_time="$seconds" -timeout=25 -rss_limit_mb=3000 -max_len=1500 \
      -artifact_prefix="build/fuzz/found/py_$name-" \
      >"$report" 2>&1; then
      failed+=("py_$name")
      tail -n 40 "$report" >&2
    else
      grep -E "^Done|cov:" "$report" | tail -n 2
    fi
  done
}

for target in ${targets[@]+"${targets[@]}"}; do
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus"
  build/fuzz/core/fuzz/replay_"$target" --write-seeds "$corpus"
  findings=()
  [[ -d core/fuzz/corpus/$target ]] && findings=("core/fuzz/corpus/$target")
  echo "== $target, $seconds s"
  report=build/fuzz/$target.log
  if ! build/fuzz/core/fuzz/fuzz_"$target" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=3000 -max_len=1500 \
    -artifact_prefix="build/fuzz/found/$target-" "$corpus" "${findings[@]}" >"$report" 2>&1; then
    failed+=("$target")
    tail -n 40 "$report" >&2
  else
    grep -E "^Done|cov:" "$report" | tail -n 2
  fi
done
run_python ${python_targets[@]+"${python_targets[@]}"}
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "fuzz: failed: ${failed[*]}; the inputs are in build/fuzz/found" >&2
  exit 1
fi
echo "fuzz: nothing found"
