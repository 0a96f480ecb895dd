"""Runs all checks that need no build: style, types, layers. ``--fix`` applies automatic fixes."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from committed_files import committed_files

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTHON_PLACES = [
    "core/python",
    "io_managers",
    "airflow_provider",
    "dagster_integration",
    "kedro_dataset",
    "cluster",
    "observability",
    "operator",
    "tests",
    "tools",
    "examples",
    "benchmarks",
]


def _checks(fix: bool) -> list[tuple[str, list[str]]]:
    python = str(BIN / "python")
    sources = committed_files(ROOT, "*.h", "*.hpp", "*.cpp", "*.c")
    places = [place for place in PYTHON_PLACES if committed_files(ROOT, f"{place}/*.py")]
    if fix:
        checks = [
            ("ruff check", [str(BIN / "ruff"), "check", "--fix", "."]),
            ("ruff format", [str(BIN / "ruff"), "format", "."]),
        ]
        if sources:
            checks.append(("clang-format", [str(BIN / "clang-format"), "-i", *sources]))
        return checks
    checks = [
        ("ruff check", [str(BIN / "ruff"), "check", "."]),
        ("ruff format", [str(BIN / "ruff"), "format", "--check", "."]),
        ("layers (C++)", [python, "tools/check_layers.py"]),
        ("unity builds", [python, "tools/check_unity.py"]),
        ("names", [python, "tools/check_names.py"]),
        ("private names", [python, "tools/check_private_names.py"]),
        ("layers (Python)", [str(BIN / "lint-imports"), "--no-cache"]),
        ("mypy", [str(BIN / "mypy"), "--strict", *places]),
        ("pyright", [str(BIN / "pyright"), *places]),
        ("prose lengths", [python, "tools/prose_lengths.py"]),
        ("file lengths", [python, "tools/file_lengths.py"]),
    ]
    if sources:
        checks.insert(2, ("clang-format", [str(BIN / "clang-format"), "--dry-run", "-Werror", *sources]))
    return checks


def main() -> int:
    """Run all checks, even after failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fix", action="store_true", help="apply automatic fixes")
    parser.add_argument("names", nargs="*", help="run only checks whose name starts with one of these")
    arguments = parser.parse_args()
    failed = []
    for name, command in _checks(arguments.fix):
        if arguments.names and not any(name.startswith(prefix) for prefix in arguments.names):
            continue
        print(f"== {name}", flush=True)
        begin = time.monotonic()
        if subprocess.run(command, cwd=ROOT).returncode != 0:
            failed.append(name)
        print(f"   {time.monotonic() - begin:.1f} s", flush=True)
    print(f"lint: failed: {', '.join(failed)}" if failed else "lint: clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
