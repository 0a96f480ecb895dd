"""The builds of Entrepot to measure: this checkout's developer build, its release build, or another commit's."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.machine import ROOT

BUILDS = ROOT / "build" / "bench-builds"
BUILD_SECONDS = 1200
PURE = {"core/python": ["entrepot"], "io_managers": ["entrepot_io", "entrepot_checkpoints", "entrepot_policy"]}


@dataclass(frozen=True)
class Package:
    """A build that can be imported.

    Attributes:
        label: its name in the results.
        python: the interpreter that imports it.
        variables: the environment of its processes.
        native: bench_native of the same build; None if the commit has none.
    """

    label: str
    python: str
    variables: dict[str, str]
    native: Path | None


class BuildFailed(Exception):
    """A commit could not be built; the message includes the end of the log."""


def developers() -> Package:
    """The build that ``make build`` put beside the sources."""
    return Package("developers' build (-O2, assertions)", sys.executable, clean_environment(), None)


def release(source: Path = ROOT, label: str = "release build", with_native: bool = True) -> Package:
    """Build a checkout in the same way as its wheel, into a directory of its own.

    Args:
        source: the checkout.
        label: its name in the results, and of the directory.
        with_native: also build bench_native, if the commit has it.

    Raises:
        BuildFailed: it does not build.
    """
    name = label.replace(" ", "-")
    folder = BUILDS / name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    targets = ["product"]
    if with_native and (source / "benchmarks/native/CMakeLists.txt").exists():
        targets.append("bench_native")
    build = source / "build" / "release"
    commands = [
        ["cmake", "--preset", "release"],
        ["cmake", "--build", str(build), "-j", str(os.cpu_count() or 2), "--target", *targets],
        ["cmake", "--install", str(build), "--component", "python", "--prefix", str(folder / "python")],
    ]
    for place, packages in PURE.items():
        for package in packages:
            target = folder / "python" / package
            shutil.rmtree(target, ignore_errors=True)
            skipped = shutil.ignore_patterns("__pycache__", "*.so", "bin", "include")
            if (source / place / package).is_dir():  # the commit may have fewer packages
                shutil.copytree(source / place / package, target, ignore=skipped)
    with _alone(build), log.open("wb") as file:
        for command in commands:
            done = subprocess.run(
                command, cwd=source, stdout=file, stderr=file, stdin=subprocess.DEVNULL, timeout=BUILD_SECONDS
            )
            if done.returncode != 0:
                raise BuildFailed(f"{' '.join(command)}: {log.read_text(errors='replace')[-2000:]}")
    python = _interpreter(folder)
    variables = clean_environment()
    _check(python, variables, folder / "python")
    native = build / "benchmarks/native/bench_native"
    return Package(label, python, variables, native if with_native and native.exists() else None)


def _interpreter(folder: Path) -> str:
    """Create an environment with the build first, followed by the packages of the project's own environment.

    The project's own environment cannot be used: its finder of editable installations precedes any path. A .pth file of
    another environment adds its packages, but not its finders.
    """
    venv = folder / "venv"
    shutil.rmtree(venv, ignore_errors=True)
    base = str(getattr(sys, "_base_executable", sys.executable))
    subprocess.run([base, "-m", "venv", "--without-pip", str(venv)], check=True, capture_output=True)
    purelib = sysconfig.get_path("purelib")
    inner = sysconfig.get_path("purelib", vars={"base": str(venv)})
    Path(inner, "bench.pth").write_text(f"{folder / 'python'}\n{purelib}\n")
    return str(venv / "bin" / "python")


def native_of_developers() -> Path:
    """Build bench_native of the developer build, and return its path.

    Raises:
        BuildFailed: it does not build.
    """
    build = ROOT / "build" / "dev"
    command = ["cmake", "--build", str(build), "--target", "bench_native"]
    with _alone(build):
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode != 0:
        raise BuildFailed(f"{' '.join(command)}: {(done.stdout + done.stderr)[-2000:]}")
    return build / "benchmarks/native/bench_native"


@contextmanager
def _alone(build: Path) -> Iterator[None]:
    """Exclude other builds by this harness in the same directory: ninja does not detect another ninja."""
    build.mkdir(parents=True, exist_ok=True)
    with (build / "bench.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def other_commit(revision: str) -> tuple[Package, str]:
    """The release build of another commit, in a worktree under ``build/``; and its abbreviated hash.

    Raises:
        BuildFailed: there is no such commit, or it does not build.
    """
    process = subprocess.run(
        ["git", "rev-parse", "--verify", "--short=12", f"{revision}^{{commit}}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if process.returncode != 0:
        raise BuildFailed(f"there is no commit {revision!r} here: {process.stderr.strip()}")
    commit = process.stdout.strip()
    tree = BUILDS / "trees" / commit
    if not tree.exists():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        command = ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit]
        added = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if added.returncode != 0:
            raise BuildFailed(f"{' '.join(command)}: {added.stderr.strip()}")
    # The presets name the interpreter of the checkout's own environment; the tools in ours work as well.
    with suppress(FileExistsError):
        (tree / ".venv").symlink_to(Path(sys.prefix))
    return release(tree, f"commit {commit}", with_native=False), commit


def clean_environment() -> dict[str, str]:
    """This process's environment without variables that would affect the systems under test."""
    dropped = ("ENTREPOT_", "PYTHON", "RAY_", "VINEYARD_", "PLASMA_", "LD_PRELOAD", "MALLOC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def _check(python: str, variables: dict[str, str], folder: Path) -> None:
    """Check that Python imports this build and no other: figures of the wrong build would be worse than none."""
    program = "import entrepot, entrepot_io, entrepot._core as c; print(entrepot.__file__); print(c.__file__)"
    done = subprocess.run([python, "-c", program], env=variables, capture_output=True, text=True, timeout=60)
    places = done.stdout.split()
    if done.returncode != 0 or not all(place.startswith(str(folder)) for place in places):
        raise BuildFailed(f"Python imports {places or done.stderr.strip()} instead of the build in {folder}")
