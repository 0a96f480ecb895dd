"""Tests wheels or an sdist as a user would: installs each in an empty environment and uses it.

A wheel is installed and used with only its environment's programs on PATH, so without a compiler, with each Python of
this machine that it is for (those of musl and without a GIL are found as tools/wheel_pythons.py says). For an sdist,
PATH also has a compiler and the programs that it calls, as on a bare image: no CMake and no Ninja. pip's cache is not
used.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wheel_pythons import Interpreter, WheelError, find_uv, interpreters, run

ROOT = Path(__file__).resolve().parent.parent
BARE_IMAGE = ("c++", "g++", "cc", "gcc", "as", "ld", "ar", "ranlib", "nm", "strip", "sh", "uname")


def _runs_here(wheel: Path) -> bool:
    return wheel.name.endswith(f"_{platform.machine()}.whl")


def _pythons_for(package: Path, pythons: list[Interpreter]) -> list[Interpreter]:
    """The Pythons that can install a wheel (all of them for a stable-ABI wheel); for an sdist, the newest usual one."""
    if package.name.endswith(".tar.gz"):
        return [python for python in pythons if python.libc == "gnu" and not python.is_free_threaded][-1:]
    libc = "musl" if "-musllinux_" in package.name else "gnu"
    return [python for python in pythons if f"-{python.tag}-" in package.name and python.libc == libc]


def _install_command(env: Path, uv: str) -> list[str]:
    """pip's, or uv's for a Python that was built without TLS and so cannot download."""
    python = str(env / "bin/python")
    has_tls = subprocess.run([python, "-c", "import ssl"], capture_output=True, timeout=60).returncode == 0
    if has_tls:
        return [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [uv, "pip", "install", "--quiet", "--python", python]


def _bare_image(folder: Path) -> str:
    """Create a directory of links to a compiler and what it calls, for use as PATH."""
    folder.mkdir()
    for name in BARE_IMAGE:
        program = shutil.which(name)
        if program is not None:
            (folder / name).symlink_to(program)
    if not (folder / "c++").exists():
        raise WheelError("building the sdist requires a C++ compiler: c++ not found on PATH")
    return str(folder)


def try_installed(package: Path, python: str, uv: str) -> str:
    """Install a wheel or an sdist beside NumPy in a new environment of ``python``, and use it.

    Args:
        package: the file to install.
        python: the interpreter to create the environment from.
        uv: the program uv.

    Returns:
        The output of the use, ending with the doctor's report.

    Raises:
        WheelError: a step failed.
    """
    with tempfile.TemporaryDirectory(prefix="entrepot-try-") as scratch:
        folder = Path(scratch)
        env = folder / "env"
        empty = folder / "empty"
        home = folder / "home"
        for place in (empty, home, folder / "run"):
            place.mkdir(mode=0o700)
        run("environment", [uv, "venv", "--quiet", "--seed", "--python", python, str(env)], cwd=empty)
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("ENTREPOT_", "PYTHON"))}
        bare["PATH"] = str(env / "bin")
        install = _install_command(env, uv)
        if "-cp313t-" in package.name:
            # msgpack has wheels for free-threaded Pythons from 3.14 on; before, its part in Python, without a compiler.
            install += ["--only-binary", "numpy,entrepot"]
            bare["MSGPACK_PUREPYTHON"] = "1"
        elif package.suffix == ".whl":
            install += ["--only-binary", ":all:"]
        else:
            install += ["--only-binary", "numpy,msgpack", "--no-cache-dir"]
            bare["PATH"] += os.pathsep + _bare_image(folder / "bin")
        # NumPy's wheels for musl do not load in every Python on musl, whatever else is there.
        extra = [] if "-musllinux_" in package.name else ["numpy"]
        run("installation", [*install, str(package), *extra], bare, empty)
        use = {"PATH": str(env / "bin"), "HOME": str(home), "XDG_RUNTIME_DIR": str(folder / "run"), "LANG": "C.UTF-8"}
        stop = [str(env / "bin/entrepot"), "stop"]
        try:
            test = [str(ROOT / "tools/wheel_smoke_test.py"), *([] if extra else ["--without-numpy"])]
            printed = run("use", [str(env / "bin/python"), "-I", *test], use, empty)
            printed += run("entrepotd", [str(env / "bin/entrepotd"), "--version"], use, empty)
            printed += run("doctor", [str(env / "bin/entrepot"), "doctor"], use, empty)
        except WheelError as failure:
            try:
                run("stop", stop, use, empty)
            except WheelError as stop_failure:
                raise WheelError(f"{failure}\nstopping the store also failed: {stop_failure}") from failure
            raise
        run("stop", stop, use, empty)
    return printed


def main() -> int:
    """Try the files named on the command line, or all wheels in dist/ that this machine can run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", type=Path, help="wheels, or an sdist; default: the wheels in dist/")
    arguments = parser.parse_args()
    packages = arguments.packages or sorted((ROOT / "dist").glob("*.whl"))
    begin = time.monotonic()
    tried = 0
    try:
        uv = find_uv()
        interpreters_found = interpreters(uv)
        for package in packages:
            source = package.name.endswith(".tar.gz")
            if not source and not _runs_here(package):
                print(f"wheel-test: {package.name}: skipped, not built for this machine ({platform.machine()})")
                continue
            pythons = _pythons_for(package, interpreters_found)
            if not pythons:
                print(f"wheel-test: {package.name}: skipped, no matching Python on this machine")
            for python in pythons:
                printed = try_installed(package.resolve(), python.path, uv)
                seconds = f"{time.monotonic() - begin:6.1f} s"
                print(f"wheel-test: {seconds}  {package.name}: works with {python.name}\n{printed}", flush=True)
                tried += 1
    except WheelError as error:
        print(f"wheel-test: {error}", file=sys.stderr)
        return 1
    if tried == 0:
        print("wheel-test: no package was tested; run make wheel to build the wheels", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
