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
COMMAND_SECONDS = 1200


class WheelError(Exception):
    """A step failed; the message says which, and includes its output."""


@dataclass(frozen=True)
class Interpreter:
    """A Python to build for; ``version`` is (major, minor)."""

    path: str
    version: tuple[int, int]

    @property
    def tag(self) -> str:
        """The tag of its wheels: ``cp311-cp311``, but ``cp312-abi3`` from 3.12 on."""
        if self.version >= STABLE_ABI:
            return f"cp{STABLE_ABI[0]}{STABLE_ABI[1]}-abi3"
        name = f"cp{self.version[0]}{self.version[1]}"
        return f"{name}-{name}"


def run(what: str, command: list[str], env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Run a command and return its output.

    Raises:
        WheelError: it failed or took longer than twenty minutes.
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
        "assert sys.implementation.name == 'cpython' and not sysconfig.get_config_var('Py_GIL_DISABLED')\n"
        "assert os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))\n"
        "print(sys._base_executable, *sys.version_info[:2])"
    )
    try:
        done = subprocess.run([path, "-I", "-c", program], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    executable, major, minor = done.stdout.rsplit(maxsplit=2)
    return Interpreter(executable, (int(major), int(minor)))


def interpreters(uv: str) -> list[Interpreter]:
    """One Python of each minor version, oldest first: from uv, pyenv and PATH."""
    candidates: list[str] = []
    for minor in range(OLDEST[1], STABLE_ABI[1] + 4):
        version = f"3.{minor}"
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
        candidates.extend(str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python")))
    chosen: dict[tuple[int, int], Interpreter] = {}
    for path in candidates:
        interpreter = inspect(path)
        if interpreter is not None and interpreter.version >= OLDEST:
            chosen.setdefault(interpreter.version, interpreter)
    return [chosen[version] for version in sorted(chosen)]
