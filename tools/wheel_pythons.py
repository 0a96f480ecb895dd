"""Shared by the wheel tools: the Pythons of this machine, and running commands."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 10)
# From this version on, one wheel serves all later Pythons; same as tool.scikit-build.wheel.py-api.
STABLE_ABI = (3, 12)
COMMAND_SECONDS = 3600


class WheelError(Exception):
    """A step failed; the message says which, and includes its output."""


@dataclass(frozen=True)
class Interpreter:
    """A Python to build for or to test with; ``version`` is (major, minor), ``libc`` is "gnu" or "musl"."""

    path: str
    version: tuple[int, int]
    is_free_threaded: bool = False
    libc: str = "gnu"

    @property
    def name(self) -> str:
        """For example ``3.13``, ``3.13t`` without a GIL, ``3.13 (musl)``."""
        return f"{self.version[0]}.{self.version[1]}{'t' * self.is_free_threaded}{' (musl)' * (self.libc == 'musl')}"

    @property
    def tag(self) -> str:
        """The tag of its wheels: ``cp311-cp311``, but ``cp312-abi3`` from 3.12 on; ``cp313-cp313t`` without a GIL, for
        which there is no stable ABI before 3.15.
        """
        name = f"cp{self.version[0]}{self.version[1]}"
        if self.is_free_threaded:
            return f"{name}-{name}t"
        if self.version >= STABLE_ABI:
            return f"cp{STABLE_ABI[0]}{STABLE_ABI[1]}-abi3"
        return f"{name}-{name}"


def run(what: str, command: list[str], env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Run a command and return its output.

    Raises:
        WheelError: it failed or took longer than an hour.
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise WheelError(f"{what}: timed out after {COMMAND_SECONDS} s: {' '.join(command)}") from error
    if done.returncode != 0:
        wrong = "\n".join(line for line in done.stdout.splitlines() if "error:" in line)  # warnings may bury the errors
        output = f"{wrong[:2000]}\n...\n{done.stdout[-6000:]}"
        raise WheelError(f"{what}: exit code {done.returncode}: {' '.join(command)}\n{output}")
    return done.stdout


def find_uv() -> str:
    """The path of uv, which is installed if missing."""
    done = subprocess.run(["bash", "tools/find_uv.sh"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def inspect(path: str) -> Interpreter | None:
    """The Python at ``path``, or None if it is unsuitable (not CPython, or without C headers)."""
    program = (
        "import os, sys, sysconfig\n"
        "assert sys.implementation.name == 'cpython'\n"
        "assert os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))\n"
        "libc = 'musl' if 'musl' in (sysconfig.get_config_var('HOST_GNU_TYPE') or '') else 'gnu'\n"
        "free = int(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)\n"
        "print(sys._base_executable, *sys.version_info[:2], free, libc)"
    )
    try:
        done = subprocess.run([path, "-I", "-c", program], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    executable, major, minor, free_threaded, libc = done.stdout.rsplit(maxsplit=4)
    return Interpreter(executable, (int(major), int(minor)), free_threaded == "1", libc.strip())


def interpreters(uv: str) -> list[Interpreter]:
    """One Python of each kind (minor version, with or without a GIL, C library), oldest first: those that the variable
    ENTREPOT_PYTHONS lists as PATH does, then those of uv, pyenv and PATH.
    """
    candidates = [path for path in os.environ.get("ENTREPOT_PYTHONS", "").split(os.pathsep) if path]
    minors = range(OLDEST[1], STABLE_ABI[1] + 4)
    for version in [f"3.{minor}" for minor in minors] + [f"3.{minor}t" for minor in minors if minor > STABLE_ABI[1]]:
        process = subprocess.run(
            [uv, "python", "find", "--no-project", "--no-python-downloads", version],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        if process.returncode == 0:
            candidates.append(process.stdout.strip())
        candidates.append(f"python{version}")
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        pattern = f"{version[:-1]}.*t" if version.endswith("t") else f"{version}.*[0-9]"
        candidates.extend(str(path) for path in sorted(pyenv.glob(f"{pattern}/bin/python")))
    chosen: dict[str, Interpreter] = {}
    for path in candidates:
        interpreter = inspect(path)
        if interpreter is not None and interpreter.version >= OLDEST:
            chosen.setdefault(interpreter.name, interpreter)
    return sorted(chosen.values(), key=lambda python: (python.libc, python.is_free_threaded, python.version))
