#!/usr/bin/env bash
# Reports missing system packages for a source build, and how to install them. As root with apt-get, installs them,
# unless ENTREPOT_NO_SYSTEM_INSTALL=1.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=() # names of Debian packages
reasons=()
need() {
  missing+=("$1")
  reasons+=("$2")
}

at_least() { # at_least REQUIRED VERSION
  [[ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" == "$1" ]]
}

find_missing() {
  missing=()
  reasons=()
  local compiler=${CXX:-g++}
  if ! echo 'int main() { return 0; }' | "$compiler" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
    need g++ "a C++20 compiler ($compiler is missing or too old)"
  fi
  local cmake_version
  cmake_version=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p') || true
  if [[ -z "$cmake_version" ]] || ! at_least 3.25 "$cmake_version"; then
    need cmake "CMake 3.25 or newer (found: ${cmake_version:-none})"
  fi
  ninja --version >/dev/null 2>&1 || need ninja-build "Ninja"
  if ! echo '#include <gtest/gtest.h>' | "$compiler" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
    need libgtest-dev "GoogleTest, for the C++ tests"
  fi
  flatc --version >/dev/null 2>&1 || need flatbuffers-compiler "FlatBuffers, for the front end of Plasma clients"
  if ! echo '#include <flatbuffers/flatbuffers.h>' | "$compiler" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
    need libflatbuffers-dev "FlatBuffers' headers, for the same"
  fi
  if ! echo '#include <ucp/api/ucp.h>' | "$compiler" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
    need libucx-dev "UCX, for gateways that use it"
  fi
  if ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && ! command -v initdb >/dev/null; then
    need postgresql "PostgreSQL, the database of Airflow in the tests"
  fi
  command -v etcd >/dev/null || need etcd-server "etcd, for the tests of the cluster's directory"
  command -v redis-server >/dev/null || need redis-server "Redis, for the same"
  PATH="$PATH:/usr/sbin" nft --version >/dev/null 2>&1 || need nftables "nft, for hosts as namespaces in the tests"
  PATH="$PATH:/usr/sbin" ip -V >/dev/null 2>&1 || need iproute2 "ip and tc, for the same"
  command -v chromium >/dev/null || need chromium "Chromium, for the tests of entrepot ui"
  command -v prometheus >/dev/null || need prometheus "Prometheus and promtool, for the tests of metrics and alerts"
  command -v zsh >/dev/null || need zsh "zsh, for the tests of entrepot completion"
  command -v fish >/dev/null || need fish "fish, for the same"
  command -v fusermount3 >/dev/null || need fuse3 "fusermount3, for the tests of entrepot mount"
  pkg-config --version >/dev/null 2>&1 || need pkg-config "pkg-config, to build pyfuse3 for the same"
  if ! echo '#include <fuse_lowlevel.h>' |
    "$compiler" -DFUSE_USE_VERSION=32 -D_FILE_OFFSET_BITS=64 -I/usr/include/fuse3 -x c -fsyntax-only - 2>/dev/null; then
    need libfuse3-dev "libfuse3's headers, for the same"
  fi
  local python library package
  python=$(bash tools/find_python.sh)
  for library in liblz4.so.1:liblz4-1 libzstd.so.1:libzstd1; do
    package=${library#*:}
    library=${library%:*}
    if [[ -n "$python" ]] && ! "$python" -c "import ctypes; ctypes.CDLL('$library')" 2>/dev/null; then
      need "$package" "$library, for the tests of packed spill files"
    fi
  done
  if [[ -z "$python" ]]; then
    need python3 "Python 3.11, 3.12 or 3.13"
    need python3-dev "Python's C headers"
  elif ! "$python" -c 'import os,sys,sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include")+"/Python.h"))'; then
    need "$("$python" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')" "Python's C headers for $python"
  fi
  if ! uv --version >/dev/null 2>&1 && [[ ! -x .tools/bin/uv ]] && ! "${python:-python3}" -c 'import ensurepip' 2>/dev/null; then
    need python3-venv "required to install uv (or install uv yourself)"
  fi
}

find_missing
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi
{
  echo "setup: missing system packages:"
  for i in "${!missing[@]}"; do
    printf '  %-16s %s\n' "${missing[$i]}" "${reasons[$i]}"
  done
} >&2
if [[ "$(id -u)" == 0 && -z "${ENTREPOT_NO_SYSTEM_INSTALL:-}" ]] && command -v apt-get >/dev/null; then
  echo "setup: installing them with apt-get (set ENTREPOT_NO_SYSTEM_INSTALL=1 to do it yourself)" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >&2
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
  find_missing
  if [[ ${#missing[@]} -eq 0 ]]; then
    exit 0
  fi
  echo "setup: still missing after the installation: ${missing[*]} (${reasons[*]})" >&2
  exit 1
fi
echo "setup: on Debian or Ubuntu: sudo apt-get install ${missing[*]}" >&2
echo "setup: on Fedora: sudo dnf install gcc-c++ cmake ninja-build gtest-devel flatbuffers-devel flatbuffers-compiler ucx-devel postgresql-server postgresql etcd redis chromium golang-github-prometheus zsh fish fuse3 fuse3-devel pkgconf python3-devel" >&2
exit 1
