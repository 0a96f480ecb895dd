"""The check of names finds what it should, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tool_modules import load_tool


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    """tools/check_names.py as a module."""
    return load_tool("check_names")


@pytest.mark.parametrize(
    "code",
    [
        "said = 1",
        "def f(told: str) -> None: ...",
        "x = [one for one in range(3)]",
        "class A:\n    def __init__(self) -> None:\n        self._said = 1",
        "try:\n    pass\nexcept OSError as told:\n    pass",
    ],
)
def test_a_name_that_says_nothing_is_found(checker: ModuleType, tmp_path: Path, code: str) -> None:
    (tmp_path / "a.py").write_text(code)
    (line,) = checker.violations(tmp_path, ["a.py"])
    assert line.startswith("a.py:")
    assert "does not say what it holds" in line


def test_a_former_module_name_is_found(checker: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "_clerk.py").write_text("")
    (line,) = checker.violations(tmp_path, ["_clerk.py"])
    assert "'_clerk'" in line


def test_ordinary_names_pass(checker: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text('value = {"said": 1}["said"]  # one of them is told\nevent_told = value.said')
    assert checker.violations(tmp_path, ["client.py"]) == []
