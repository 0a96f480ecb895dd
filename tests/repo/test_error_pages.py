"""docs/errors has a page for each error that users can meet, and for nothing else.

Classes are looked for in the sources, because importing all of them would load every orchestrator.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "errors"
# They have the codes of the errors that they derive from, under the names that programs of pyarrow's time use.
NAMED_FOR_PLASMA = "core/python/entrepot/plasma/errors.py"


@dataclass(frozen=True)
class ErrorClass:
    """A class that derives from EntrepotError."""

    name: str
    file: str
    short_code: str


def _short_code(definition: ast.ClassDef) -> str:
    for statement in definition.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        value = getattr(statement, "value", None)
        if isinstance(target, ast.Name) and target.id == "short_code" and isinstance(value, ast.Constant):
            return str(value.value)
    return ""


def error_classes() -> list[ErrorClass]:
    """All classes of the packages that derive from EntrepotError, directly or not."""
    definitions: list[tuple[ast.ClassDef, str]] = []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for folder in project["tool"]["scikit-build"]["wheel"]["packages"]:
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            file = str(path.relative_to(ROOT))
            definitions += [(node, file) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    names = {"EntrepotError"}
    while True:
        more = {node.name for node, _ in definitions if names & {ast.unparse(base) for base in node.bases}}
        if more <= names:
            break
        names |= more
    return [ErrorClass(node.name, file, _short_code(node)) for node, file in definitions if node.name in names]


CLASSES = [error for error in error_classes() if error.file != NAMED_FOR_PLASMA]


def test_the_search_finds_errors_of_all_packages() -> None:
    assert {"EntrepotError", "StoreFull", "PolicyError", "RankFailed", "ResourceNotFound", "NodeKilled"} <= {
        error.name for error in CLASSES
    }


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.name)
def test_an_error_has_a_page_with_causes_and_ways_out(error: ErrorClass) -> None:
    assert re.fullmatch(r"E\d{3}", error.short_code), f"{error.name} in {error.file} has no short code of its own"
    text = (PAGES / f"{error.short_code}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {error.short_code}: {error.name}\n")
    for section in ("## Causes", "## What to do"):
        assert re.search(rf"^{section}\n\n- \S", text, re.MULTILINE), f"{error.short_code}.md lacks {section}"


def test_short_codes_are_unique() -> None:
    codes = [error.short_code for error in CLASSES]
    assert sorted(codes) == sorted(set(codes))


def test_each_page_has_its_error_and_is_in_the_index() -> None:
    on_disk = {path.stem for path in PAGES.glob("E*.md")}
    assert on_disk == {error.short_code for error in CLASSES}
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(E\d{3})\]\(\1\.md\) \| `(\w+)` \|", index, re.MULTILINE)
    assert sorted(listed) == sorted((error.short_code, error.name) for error in CLASSES)
