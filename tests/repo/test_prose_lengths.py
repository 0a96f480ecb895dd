"""The check of line lengths in Markdown finds long lines of prose only, and none in this repository."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tool_modules import load_tool


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    """tools/prose_lengths.py as a module."""
    return load_tool("prose_lengths")


def test_this_repository_is_clean(checker: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert checker.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize("length", [119, 120])
def test_lines_up_to_the_limit_are_allowed(checker: ModuleType, length: int) -> None:
    assert list(checker.long_lines("é" * length)) == []


def test_long_prose_is_reported_with_its_line(checker: ModuleType) -> None:
    assert list(checker.long_lines("short\n\n- " + "x" * 119 + "\n")) == [(3, 121)]


def test_prose_after_a_code_block_is_checked(checker: ModuleType) -> None:
    text = "\n".join(["```bash", "x" * 200, "```", "y" * 130])
    assert list(checker.long_lines(text)) == [(4, 130)]


@pytest.mark.parametrize(
    "text",
    [
        "| " + "x" * 200 + " |",
        "  | " + "x" * 200 + " |",
        "```\n" + "x" * 200 + "\n```",
        "  ~~~text\n```\n" + "x" * 200 + "\n~~~",
        "````\n```\n" + "x" * 200 + "\n````",
        "see https://example.com/" + "x" * 200,
    ],
)
def test_tables_code_and_addresses_may_be_longer(checker: ModuleType, text: str) -> None:
    assert list(checker.long_lines(text)) == []
