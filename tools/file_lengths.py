"""Lists files longer than LIMIT lines, which often mix two concerns. Informational only."""

from __future__ import annotations

import sys
from pathlib import Path

from committed_files import committed_files

LIMIT = 400
SUFFIXES = {".py", ".pyi", ".h", ".hpp", ".cpp", ".sh", ".cmake", ".md"}


def long_files(root: Path) -> list[tuple[int, str]]:
    """Committed files of more than LIMIT lines, longest first."""
    lengths = []
    for name in committed_files(root):
        path = root / name
        if path.suffix in SUFFIXES:
            lines = path.read_bytes().count(b"\n")
            if lines > LIMIT:
                lengths.append((lines, name))
    return sorted(lengths, reverse=True)


def main() -> int:
    """Print the report."""
    files = long_files(Path(__file__).resolve().parent.parent)
    for lines, name in files:
        print(f"{lines:6} {name}")
    print(f"{len(files)} files have more than {LIMIT} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
