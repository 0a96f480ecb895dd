"""The wheel that `make wheel` builds for this Python and machine: its contents, and that it works without a compiler.

Built from a copy of the committed and new files, with leftovers of a developer's build added.
"""

from __future__ import annotations

import os
import platform
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel of this tree."""
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
    out = tree / "dist"
    machine = platform.machine()
    command = [sys.executable, "tools/wheel.py", "--out", str(out), "--arch", machine, "--python", sys.executable]
    # Keep the libc++ that zig compiles between runs.
    variables = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(ROOT / "build/wheel/zig-cache")}
    built = subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True, timeout=900)
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
    assert len(list(out.glob("entrepot-*.tar.gz"))) == 1  # the sdist from which the wheel was built
    (built_wheel,) = out.glob("*.whl")
    return built_wheel


def _elf_machine(content: bytes) -> str:
    assert content[:4] == b"\x7fELF"
    (number,) = struct.unpack_from("<H", content, 18)
    return {62: "x86_64", 183: "aarch64"}[number]


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
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
    command = [sys.executable, "tools/wheel_check.py", str(wheel)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{wheel.name}: works" in done.stdout
    assert "ok       entrepotd: " in done.stdout
