"""Lists files longer than LIMIT lines, which often mix two concerns. Informational only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT = 400
SUFFIXES = {".py", ".pyi", ".h", ".hpp", ".cpp", ".sh", ".cmake", ".md"}


def long_files(root: Path) -> list[tuple[int, str]]:
    """Committed files of more than LIMIT lines, longest first."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True).stdout
    lengths = []
    for name in listed.decode().split("\0"):
        path = root / name
        if path.suffix in SUFFIXES and path.is_file():
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
