"""Rejects names that say nothing: variables called ``said``, ``told``, ``one``, ``known``, ``found`` or ``there``, and
the former names of modules.

Python is parsed; in C++ and Go, regular expressions find the declarations. Former names are rejected in every component
of a source file's path. Run without arguments from anywhere; prints each violation as ``file:line: what`` and exits 1
if there is one.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from committed_files import committed_files

# A variable, a function or a type is named after what it holds, does or is.
VARIABLES = frozenset({"said", "told", "one", "known", "found", "there"})
# Modules are named after what they contain; these had other names and were renamed.
MODULES = frozenset(
    {
        "adopt",
        "advising",
        "asked",
        "asking",
        "at_work",
        "authority",
        "behind",
        "binding",
        "bounds",
        "children",
        "clerk",
        "cold_storage",
        "counting",
        "describe",
        "doubles",
        "drawing",
        "ending",
        "expiry",
        "greeting",
        "guard",
        "handoff",
        "holding",
        "hole_set",
        "hosted",
        "injecting",
        "installing",
        "janitor",
        "keeping",
        "kinds",
        "knowing",
        "knowledge",
        "lazy",
        "leading",
        "listening",
        "lives",
        "locating",
        "manifest_text",
        "observed",
        "observing",
        "patching",
        "planned",
        "policies",
        "polled",
        "problems",
        "reasons",
        "reloading",
        "remaking",
        "remembering",
        "rerunning",
        "restoring",
        "retrying",
        "reviewing",
        "run_notes",
        "running",
        "runtimes",
        "saving",
        "set_table",
        "settling",
        "shapes",
        "site_options",
        "sweeping",
        "telling",
        "trees",
        "trouble",
        "use_order",
        "waiters",
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


CPP = (".c", ".cpp", ".h", ".hpp")
PATTERNS = ("*.py", "*.go", *(f"*{suffix}" for suffix in CPP))

_NAME = rf"(?P<name>(?:{'|'.join(sorted(VARIABLES))})_?)\b"
# Comments and literals, which may hold any word. A quote between digits separates them.
_TEXT_OF_CPP = re.compile(
    r'R"(?P<mark>\w*)\((?s:.*?)\)(?P=mark)"|//[^\n]*|/\*(?s:.*?)\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
)
_TEXT_OF_GO = re.compile(r'`[^`]*`|//[^\n]*|/\*(?s:.*?)\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'')
# A name after a type: a variable, a parameter, a member, a function; and a name in a structured binding.
_IN_CPP = (
    re.compile(
        r"(?<![\w.])(?!(?:return|else|throw|case|delete|goto|not|and|or|co_return|co_yield|co_await)\b)"
        rf"[A-Za-z_][\w:]*(?:<[^;{{}}]*>)?[&*]*\s+{_NAME}\s*(?=[=;,:(){{}}\[\]]|$)",
        re.MULTILINE,
    ),
    re.compile(rf"\bauto[&\s]*\[(?:\w+,\s*)*{_NAME}(?:,\s*\w+)*\]"),
)
_IN_GO = (
    re.compile(rf"(?<![\w.]){_NAME}(?:,\s*\w+)*\s*:="),
    re.compile(rf"\b(?:var|const|type)\s+{_NAME}"),
    re.compile(rf"\bfunc\s+(?:\([^)]*\)\s*)?{_NAME}"),
    re.compile(rf"\bfunc\b[^{{\n]*[(,]\s*{_NAME}(?:,\s*\w+)*\s+[\w*.\[]"),  # a parameter
    re.compile(rf"^\s+{_NAME}\s+[\w*.\[\]{{}}]+\s*$", re.MULTILINE),  # a field
)


def _bound(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names that a Python module binds: variables, parameters, patterns, functions, classes, and aliases of imports."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.MatchMapping(rest=str(name)):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def _declared(source: str, text: re.Pattern[str], patterns: Iterable[re.Pattern[str]]) -> Iterator[tuple[int, str]]:
    """Names from ``VARIABLES`` that a source in C++ or Go declares.

    Args:
        source: the source.
        text: its comments and literals.
        patterns: its declarations.
    """
    code = text.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    lines = {
        (code.count("\n", 0, match.start("name")) + 1, match["name"])
        for pattern in patterns
        for match in pattern.finditer(code)
    }
    yield from sorted(lines)


def _declarations(path: Path) -> Iterator[tuple[int, str]]:
    """Names that a source file declares, each with its line."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _bound(ast.parse(source))
    elif path.suffix == ".go":
        yield from _declared(source, _TEXT_OF_GO, _IN_GO)
    else:
        yield from _declared(source, _TEXT_OF_CPP, _IN_CPP)


def _former_names(file: str) -> list[str]:
    """Components of a path that are a former name of a module: folders, the file, or the test of such a file."""
    components = [component.partition(".")[0] for component in Path(file).parts]
    return [
        component
        for component in components
        if component.lstrip("_").removeprefix("test_").removesuffix("_test") in MODULES
    ]


def violations(root: Path, files: list[str]) -> list[str]:
    """Every violation in these source files of ``root``, as ``file:line: what``."""
    lines = []
    for file in files:
        if file not in ALIASES:
            lines += [
                f"{file}:1: a module is named after what it contains; {component!r} was renamed for that reason"
                for component in _former_names(file)
            ]
        lines += [
            f"{file}:{line}: {name!r} does not say what it holds"
            for line, name in _declarations(root / file)
            if name.strip("_") in VARIABLES
        ]
    return lines


def main() -> int:
    """Check the repository, or the one named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    root: Path = parser.parse_args().root
    lines = violations(root, committed_files(root, *PATTERNS))
    print("\n".join(lines) if lines else "names: clean")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
