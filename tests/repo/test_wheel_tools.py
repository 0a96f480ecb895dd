"""Which wheels `make wheel` builds, and with which Pythons `make wheel-test` tries them."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tool_modules import load_tool


@pytest.fixture
def pythons(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("wheel_pythons", monkeypatch)


@pytest.mark.parametrize(
    ("version", "free_threaded", "tag", "name"),
    [
        ((3, 10), False, "cp310-cp310", "3.10"),
        ((3, 11), False, "cp311-cp311", "3.11"),
        ((3, 12), False, "cp312-abi3", "3.12"),
        ((3, 14), False, "cp312-abi3", "3.14"),
        ((3, 13), True, "cp313-cp313t", "3.13t"),
        ((3, 14), True, "cp314-cp314t", "3.14t"),
    ],
)
def test_each_python_has_the_tag_of_its_wheels(
    pythons: ModuleType, version: tuple[int, int], free_threaded: bool, tag: str, name: str
) -> None:
    interpreter = pythons.Interpreter("", version, free_threaded)
    assert (interpreter.tag, interpreter.name) == (tag, name)


def test_this_python_is_what_it_says_it_is(pythons: ModuleType) -> None:
    inspected = pythons.inspect(sys.executable)
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        assert inspected is None
        return
    assert inspected.version == sys.version_info[:2]
    assert inspected.is_free_threaded == bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert inspected.libc == ("musl" if "musl" in sysconfig.get_config_var("HOST_GNU_TYPE") else "gnu")
    assert not Path(inspected.path).is_relative_to(sys.prefix) or sys.prefix == sys.base_prefix


def test_pythons_that_nobody_looks_for_are_taken_from_a_variable(
    pythons: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if pythons.inspect(sys.executable) is None:
        pytest.skip("this Python has no C headers")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    nothing = tmp_path / "uv"
    nothing.write_text("#!/bin/sh\nexit 1\n")
    nothing.chmod(0o755)
    assert pythons.interpreters(str(nothing)) == []
    monkeypatch.setenv("ENTREPOT_PYTHONS", f"{tmp_path}/none{os.pathsep}{sys.executable}")
    assert [python.version for python in pythons.interpreters(str(nothing))] == [sys.version_info[:2]]


def test_a_wheel_is_tried_with_the_pythons_that_it_is_for(pythons: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    check = load_tool("wheel_check", monkeypatch)
    every = [
        pythons.Interpreter("", (3, 11)),
        pythons.Interpreter("", (3, 12)),
        pythons.Interpreter("", (3, 14)),
        pythons.Interpreter("", (3, 13), True),
        pythons.Interpreter("", (3, 13), False, "musl"),
    ]

    def names(package: str) -> list[str]:
        return [python.name for python in check._pythons_for(Path(package), every)]

    assert names("entrepot-1-cp311-cp311-manylinux_2_27_x86_64.whl") == ["3.11"]
    assert names("entrepot-1-cp312-abi3-manylinux_2_27_x86_64.whl") == ["3.12", "3.14"]
    assert names("entrepot-1-cp312-abi3-musllinux_1_2_x86_64.whl") == ["3.13 (musl)"]
    assert names("entrepot-1-cp313-cp313t-manylinux_2_27_x86_64.whl") == ["3.13t"]
    assert names("entrepot-1.tar.gz") == ["3.14"]


@pytest.mark.parametrize(
    ("version", "free_threaded", "libc", "suffix"),
    [
        ((3, 10), False, "gnu", ".cpython-310-x86_64-linux-gnu.so"),
        ((3, 10), False, "musl", ".cpython-310-x86_64-linux-gnu.so"),
        ((3, 11), False, "musl", ".cpython-311-x86_64-linux-musl.so"),
        ((3, 13), True, "gnu", ".cpython-313t-x86_64-linux-gnu.so"),
        ((3, 14), True, "musl", ".cpython-314t-x86_64-linux-musl.so"),
    ],
)
def test_extensions_are_named_as_their_python_looks_for_them(
    pythons: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    version: tuple[int, int],
    free_threaded: bool,
    libc: str,
    suffix: str,
) -> None:
    wheel = load_tool("wheel", monkeypatch)
    assert wheel._suffix(pythons.Interpreter("", version, free_threaded), "x86_64", libc) == suffix
