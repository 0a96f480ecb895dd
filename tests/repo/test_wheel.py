"""The wheels that `make wheel` builds for this Python and machine, for glibc and for musl, and for a Python without a
GIL if there is one: their contents, and that they work without a compiler.

Built from a copy of the committed and new files, with leftovers of a developer's build added.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tool_modules import load_tool

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of this tree."""
    tree = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    # Leftovers of a developer's build beside the sources must not be included.
    (tree / "core/python/entrepot/bin").mkdir()
    (tree / "core/python/entrepot/bin/stale").write_text("old")
    (tree / "core/python/entrepot/_core_stale.so").write_text("old")
    return tree


def build(tree: Path, python: str, *options: str) -> list[Path]:
    """Build wheels for this machine in a copy of the tree."""
    out = tree / "dist"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "tools/wheel.py", "--out", str(out), "--arch", platform.machine(), "--python", python]
    # Keep the libc++ that zig compiles between runs.
    variables = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(ROOT / "build/wheel/zig-cache")}
    built = subprocess.run([*command, *options], cwd=tree, env=variables, capture_output=True, text=True, timeout=1500)
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
    assert len(list(out.glob("entrepot-*.tar.gz"))) == 1  # the sdist from which the wheels were built
    return sorted(out.glob("*.whl"))


@pytest.fixture(scope="module")
def wheels(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheels of this tree for this Python, by C library."""
    kept = tmp_path_factory.mktemp("wheels")
    by_libc = {"musl" if "musllinux" in path.name else "gnu": path for path in build(tree, sys.executable)}
    return {libc: Path(shutil.copy2(path, kept)) for libc, path in by_libc.items()}


@pytest.fixture
def wheel(wheels: dict[str, Path]) -> Path:
    return wheels["gnu"]


def installed_and_used(wheel: Path, python: str) -> str:
    """What tools/wheel_check.py prints, if the wheel works with that Python."""
    # Before others of its kind.
    variables = os.environ | {"ENTREPOT_PYTHONS": f"{python}{os.pathsep}{os.environ.get('ENTREPOT_PYTHONS', '')}"}
    command = [sys.executable, "tools/wheel_check.py", str(wheel)]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def interpreter_like(kind: Callable[[Any], bool], what: str) -> Any:
    """The newest Python of this machine that is of a kind, in the terms of tools/wheel_pythons.py; skips if none is."""
    tool = load_tool("wheel_pythons")
    matching = [python for python in tool.interpreters(tool.find_uv()) if kind(python)]
    if not matching:
        pytest.skip(f"no {what} on this machine: ENTREPOT_PYTHONS=/path/to/python names one that is elsewhere")
    return matching[-1]


def _elf_machine(content: bytes) -> str:
    assert content[:4] == b"\x7fELF"
    (number,) = struct.unpack_from("<H", content, 18)
    return {62: "x86_64", 183: "aarch64"}[number]


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_wheel_holds_what_it_should_and_works_by_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    packages = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert packages == {
        "entrepot",
        "entrepot_io",
        "entrepot_checkpoints",
        "entrepot_policy",
        "entrepot_pipes",
        "entrepot_mount",
        "entrepot_cluster",
        "entrepot_frames",
        "entrepot_metrics",
        "entrepot_ui",
        "entrepot_airflow",
        "entrepot_dagster",
        "entrepot_kedro",
        "entrepot_operator",
    }
    for package in packages:
        assert f"{package}/py.typed" in names
        assert f"{package}/__init__.py" in names
    assert "entrepot/_core.pyi" in names
    assert "entrepot/error_pages/E101.md" in names
    assert {f"entrepot_ui/assets/{name}" for name in ("index.html", "main.js", "style.css", "icon.svg")} <= names
    for kind in ("stores", "localobjects", "globalobjects", "directoryshards"):
        assert f"entrepot_operator/manifests/crds/{kind}.yaml" in names
    assert modes["entrepot/bin/entrepotd"] & 0o111
    extensions = [name for name in names if name.startswith("entrepot/_core") and name.endswith(".so")]
    assert len(extensions) == 1
    assert not {"entrepot/bin/stale", "entrepot/_core_stale.so"} & names
    assert not [name for name in names if name.endswith((".cpp", ".h", ".o", ".a", ".pyc")) and "/include/" not in name]
    required = [
        line.removeprefix("Requires-Dist: ")
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert sorted(line.partition(">")[0].strip() for line in required) == ["msgpack", "tomli"]
    for extra in ("airflow", "dagster", "kedro", "kubernetes"):
        assert f"Provides-Extra: {extra}" in metadata
    assert wheel.name.endswith(f"-manylinux_2_27_{platform.machine()}.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in ("entrepot/bin/entrepotd", extensions[0]):
            assert _elf_machine(archive.read(name)) == platform.machine()
    printed = installed_and_used(wheel, sys.executable)
    assert f"{wheel.name}: works with {sys.version_info[0]}.{sys.version_info[1]}\n" in printed
    assert "ok       entrepotd: " in printed


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_wheel_for_musl_needs_nothing_but_musl(wheels: dict[str, Path], tmp_path: Path) -> None:
    wheel = wheels["musl"]
    assert wheel.name == wheels["gnu"].name.replace("manylinux_2_27", "musllinux_1_2")
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(wheels["gnu"]) as other:
        names = set(archive.namelist())
        assert {name.replace("-linux-musl.so", "-linux-gnu.so") for name in names} == set(other.namelist())
        (extension,) = [name for name in names if name.startswith("entrepot/_core") and name.endswith(".so")]
        for name in ("entrepot/bin/entrepotd", extension):
            archive.extract(name, tmp_path)
            dynamic = subprocess.run(["readelf", "-d", str(tmp_path / name)], capture_output=True, text=True)
            assert dynamic.returncode == 0, dynamic.stderr
            assert set(re.findall(r"NEEDED.*\[(.+)\]", dynamic.stdout)) <= {"libc.so"}


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_the_wheel_for_musl_works_by_itself(wheels: dict[str, Path]) -> None:
    wheel = wheels["musl"]
    python = interpreter_like(
        lambda python: python.libc == "musl" and f"-{python.tag}-" in wheel.name, "Python on musl"
    )
    assert f"{wheel.name}: works with {python.name}\n" in installed_and_used(wheel, python.path)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_a_wheel_for_a_python_without_a_gil_works_by_itself(tree: Path) -> None:
    python = interpreter_like(lambda python: python.is_free_threaded and python.libc == "gnu", "free-threaded Python")
    (wheel,) = build(tree, python.path, "--libc", "gnu")
    printed = installed_and_used(wheel, python.path)
    assert f"{wheel.name}: works with {python.name}\n" in printed
    assert f"python {python.name.removesuffix('t')} without a GIL" in printed
