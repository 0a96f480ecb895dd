"""Rejects names that say nothing: variables called ``said``, ``told`` or ``one``, and the former names of modules.

Run without arguments from anywhere; prints each violation as ``file:line: what`` and exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# A variable is named after what it holds.
VARIABLES = frozenset({"said", "told", "one"})
# Modules are named after what they contain; these had other names and were renamed.
MODULES = frozenset(
    {
        "advising",
        "asked",
        "asking",
        "at_work",
        "authority",
        "behind",
        "binding",
        "clerk",
        "counting",
        "doubles",
        "drawing",
        "ending",
        "guard",
        "handoff",
        "holding",
        "hosted",
        "injecting",
        "keeping",
        "knowing",
        "knowledge",
        "leading",
        "lives",
        "locating",
        "polled",
        "reasons",
        "reloading",
        "remaking",
        "remembering",
        "rerunning",
        "retrying",
        "reviewing",
        "running",
        "saving",
        "settling",
        "shapes",
        "sweeping",
        "telling",
        "trouble",
        "watching",
        "weighing",
        "whole_runs",
        "wishes",
        "working",
        "writing",
    }
)
# Deprecated aliases of public modules, for one version; they go away together with their line here.
ALIASES = frozenset(
    {
        "io_managers/entrepot_io/handoff.py",
        "io_managers/entrepot_io/placement/locating.py",
        "io_managers/entrepot_io/placement/polled.py",
        "io_managers/entrepot_io/placement/reasons.py",
    }
)


def _bound(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names that a module binds: variables, parameters, functions, classes, and names of imports."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def violations(root: Path, files: list[str]) -> list[str]:
    """Every violation in these Python files of ``root``, as ``file:line: what``."""
    lines = []
    for file in files:
        path = root / file
        if path.stem.lstrip("_") in MODULES and file not in ALIASES:
            lines.append(
                f"{file}:1: a module is named after what it contains; {path.stem!r} was renamed for that reason"
            )
        for line, name in _bound(ast.parse(path.read_text(encoding="utf-8"))):
            if name.strip("_") in VARIABLES:
                lines.append(f"{file}:{line}: {name!r} does not say what it holds")
    return lines


def main() -> int:
    """Check the repository, or the one named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    root: Path = parser.parse_args().root
    listed = subprocess.run(["git", "ls-files", "-z", "--", "*.py"], cwd=root, check=True, capture_output=True).stdout
    files = [name for name in listed.decode().split("\0") if name and (root / name).is_file()]
    lines = violations(root, files)
    print("\n".join(lines) if lines else "names: clean")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
