"""Builds the release files: an sdist, and from it wheels for each Python and architecture that this machine supports.

The wheels are built by zig for an old glibc or for musl, and for the oldest CPU of their architecture. They are tagged
as manylinux or musllinux once it is verified that they need nothing else. Rationale: docs/decisions/0004-wheels.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tarfile
import time
from pathlib import Path

from wheel_pythons import OLDEST, STABLE_ABI, Interpreter, WheelError, find_uv, inspect, interpreters, run

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheel"
LOCK = ROOT / "requirements-wheel.lock"
# The first version with memfd_create; later ones are compatible, hence all manylinux_2_28 systems.
GLIBC = "2.27"
# The oldest that has all functions that the binaries use (gettid, of 1.2.2, is a system call here).
MUSL = "1.2"
ARCHITECTURES = ("x86_64", "aarch64")
LIBCS = ("gnu", "musl")
# Variables that the caller's shell may have set for other builds.
FOREIGN = {"CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS", "PYTHONPATH", "VIRTUAL_ENV"}


def environment(uv: str, python: Interpreter) -> Path:
    """A virtual environment of that Python with exactly the locked packages; kept for the next time."""
    folder = WORK / "env" / python.name
    if not (folder / "bin/python").exists():
        run("virtual environment", [uv, "venv", "--quiet", "--clear", "--python", python.path, str(folder)])
    run(
        "build requirements",
        [uv, "pip", "sync", "--quiet", "--python", str(folder / "bin/python"), "--require-hashes", str(LOCK)],
    )
    return folder


def _variables(tools: Path) -> dict[str, str]:
    """Environment variables of a build: the programs of the environment ``tools`` first, and none of the caller's
    flags.
    """
    variables = {
        name: value for name, value in os.environ.items() if name not in FOREIGN and not name.startswith("SKBUILD_")
    }
    variables["PATH"] = f"{tools / 'bin'}{os.pathsep}{variables.get('PATH', os.defpath)}"
    return variables


def build_sdist(env: Path, out: Path) -> Path:
    """Build the sdist of this tree into ``out``."""
    folder = WORK / "sdist"
    shutil.rmtree(folder, ignore_errors=True)
    command = [str(env / "bin/python"), "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    run("sdist", command, _variables(env))
    (archive,) = folder.glob("*.tar.gz")
    return _publish(archive, out)


def unpack(archive: Path) -> Path:
    """Unpack the sdist; returns its directory."""
    folder = WORK / "source"
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as content:
        if hasattr(tarfile, "data_filter"):
            content.extractall(folder, filter="data")
        else:
            content.extractall(folder)
    (source,) = folder.iterdir()
    return source


def build_wheel(env: Path, tools: Path, python: Interpreter, target: tuple[str, str], source: Path, out: Path) -> Path:
    """Build a wheel from ``source`` and write it, repaired, to ``out``.

    All Pythons share one build directory for each target (architecture and C library) and the compiler of the
    environment ``tools``, so that only the extension is recompiled; scikit-build-core creates a separate configuration
    for each. A Python on glibc builds for musl, too: its headers are the same.

    Raises:
        WheelError: the build failed, or auditwheel found a dependency that older machines lack.
    """
    arch, libc = target
    label = f"wheel {python.tag} {arch} {libc}"
    folder = WORK / "raw" / f"{python.tag}-{arch}-{libc}"
    shutil.rmtree(folder, ignore_errors=True)
    program = str(env / "bin/python")
    (zig,) = tools.glob("lib/python*/site-packages/ziglang/zig")
    variables = _variables(tools) | {
        "CMAKE_TOOLCHAIN_FILE": str(source / "cmake/ZigToolchain.cmake"),
        "ENTREPOT_ZIG": str(zig),
        "ENTREPOT_ZIG_ARCH": arch,
        "ENTREPOT_ZIG_LIBC": f"gnu.{GLIBC}" if libc == "gnu" else "musl",
        # Keep the compiled libc++ with other build artifacts.
        "ZIG_GLOBAL_CACHE_DIR": os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(WORK / "zig-cache")),
        "ZIG_LOCAL_CACHE_DIR": str(WORK / "zig-cache"),
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
        "SETUPTOOLS_EXT_SUFFIX": _suffix(python, arch, libc),
        "SKBUILD_INSTALL_STRIP": "false",
        # Eight sources at a time, as the sanitizers' presets: a third of the time.
        "SKBUILD_CMAKE_DEFINE": "CMAKE_UNITY_BUILD=ON;CMAKE_UNITY_BUILD_BATCH_SIZE=8",
        "SKBUILD_BUILD_DIR": str(WORK / "cmake" / f"{arch}-{libc}"),
    }
    command = [program, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    run(label, command, variables)
    (raw,) = folder.glob("*.whl")
    repaired = folder / "repaired"
    if libc == "gnu":
        repair = [str(tools / "bin/python"), "-m", "auditwheel", "repair", "--plat", "auto", "--only-plat"]
        printed = run(f"{label}: auditwheel", [*repair, "--wheel-dir", str(repaired), str(raw)], variables)
    else:
        repair = [str(tools / "bin/python"), str(ROOT / "tools/wheel_musl.py"), str(raw), str(repaired)]
        printed = run(f"{label}: tag", [*repair, f"musllinux_{MUSL.replace('.', '_')}_{arch}"], variables)
    (wheel,) = repaired.glob("*.whl")
    # auditwheel names a wheel after the newest symbol it needs; this is how it accepts another machine's platform.
    oldest = f"manylinux_{GLIBC.replace('.', '_')}" if libc == "gnu" else f"musllinux_{MUSL.replace('.', '_')}"
    if not wheel.name.endswith(f"-{python.tag}-{oldest}_{arch}.whl"):
        raise WheelError(f"{label}: expected a wheel for {oldest}, got {wheel.name}:\n{printed}")
    return _publish(wheel, out)


def _suffix(python: Interpreter, arch: str, libc: str) -> str:
    """What the file names of extensions end with in that Python; up to 3.10 they name glibc on musl as well."""
    named = libc if python.version >= (3, 11) else "gnu"
    free = "t" if python.is_free_threaded else ""
    return f".cpython-{python.version[0]}{python.version[1]}{free}-{arch}-linux-{named}.so"


def _publish(built: Path, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(built, out / built.name))


def main() -> int:
    """Build what the command line requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="output folder; default: dist")
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="may be repeated; default: all")
    parser.add_argument("--libc", action="append", choices=LIBCS, help="may be repeated; default: all")
    parser.add_argument(
        "--python", action="append", help="a Python to build for; may be repeated; default: one for each wheel tag"
    )
    arguments = parser.parse_args()
    if platform.system() != "Linux":
        print(f"wheel: Entrepot currently builds only on Linux, not on {platform.system()}", file=sys.stderr)
        return 1
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"wheel: {time.monotonic() - begin:6.1f} s  {text}", flush=True)

    try:
        uv = find_uv()
        if arguments.python:
            pythons = []
            for path in arguments.python:
                python = inspect(path)
                if python is None or python.version < OLDEST or python.libc != "gnu":
                    raise WheelError(f"--python {path}: must be CPython 3.10 or later on glibc, with its C headers")
                pythons.append(python)
        else:
            on_glibc = [python for python in interpreters(uv) if python.libc == "gnu"]
            pythons = list({python.tag: python for python in reversed(on_glibc)}.values())[::-1]
            for minor in range(OLDEST[1], STABLE_ABI[1] + 1):
                tag = Interpreter("", (3, minor)).tag
                if tag not in {python.tag for python in pythons}:
                    say(f"no Python with C headers for {tag} on this machine: skipping its wheels")
            if not any(python.is_free_threaded for python in pythons):
                say("no free-threaded Python with C headers on this machine: skipping its wheels")
        if not pythons:
            raise WheelError("no CPython 3.10 or later with its C headers found; specify one with --python")
        environments = [environment(uv, python) for python in pythons]
        tools = environments[0]
        archive = build_sdist(tools, arguments.out)
        say(f"{archive.name}  {archive.stat().st_size / 1e6:.1f} MB")
        source = unpack(archive)
        shutil.rmtree(WORK / "cmake", ignore_errors=True)
        for arch in arguments.arch or ARCHITECTURES:
            for libc in arguments.libc or LIBCS:
                for python, env in zip(pythons, environments, strict=True):
                    wheel = build_wheel(env, tools, python, (arch, libc), source, arguments.out)
                    say(f"{wheel.name}  {wheel.stat().st_size / 1e6:.1f} MB")
    except WheelError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
