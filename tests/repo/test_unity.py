"""The check for clashes in unity builds finds names defined twice in one target, and nothing in this repository."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tool_modules import ROOT, load_tool


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    """tools/check_unity.py as a module."""
    return load_tool("check_unity")


def _target(root: Path, first: str, second: str, *, cmake: str = "entrepot_library(base a.cpp b.cpp)") -> None:
    folder = root / "core/src/base"
    folder.mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text(cmake)
    for name, body in (("a.cpp", first), ("b.cpp", second)):
        (folder / name).write_text(f"namespace {{\n\n{body}\n\n}}  // namespace\n")


def test_this_repository_is_clean(checker: ModuleType) -> None:
    assert checker.clashes(ROOT) == []


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ("constexpr int kMost = 1;", "constexpr std::uint64_t kMost = 2;", "kMost"),
        ("struct Part {\n  int a;\n};", "class Part {\n};", "Part"),
        ("bool fits(int a) {\n}", "bool fits(int b) {\n}", "fits(int)"),
    ],
)
def test_a_name_defined_twice_is_found(checker: ModuleType, tmp_path: Path, first: str, second: str, name: str) -> None:
    _target(tmp_path, first, second)
    (clash,) = checker.clashes(tmp_path)
    assert clash.startswith("core/src/base/b.cpp:3: ")
    assert f"{name} is also in an anonymous namespace of a.cpp:" in clash


@pytest.mark.parametrize(
    ("first", "second", "cmake"),
    [
        ("bool fits(int a) {\n}", "bool fits(long a) {\n}", "entrepot_library(base a.cpp b.cpp)"),
        (
            "struct Part {\n  int size() {\n  }\n};",
            "struct Whole {\n  int size() {\n  }\n};",
            "entrepot_library(base a.cpp b.cpp)",
        ),
        (
            "constexpr int kA = 1;",
            "constexpr int kA = 1;",
            "entrepot_test(a SOURCES a.cpp)\nentrepot_test(b SOURCES b.cpp)",
        ),
        (
            "constexpr int kA = 1;",
            "constexpr int kA = 1;",
            "entrepot_library(base a.cpp b.cpp)\n"
            "set_source_files_properties(b.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)",
        ),
    ],
    ids=["overloads", "members", "targets", "compiled alone"],
)
def test_what_does_not_clash_passes(checker: ModuleType, tmp_path: Path, first: str, second: str, cmake: str) -> None:
    _target(tmp_path, first, second, cmake=cmake)
    assert checker.clashes(tmp_path) == []
