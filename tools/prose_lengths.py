"""Fails on lines of prose in Markdown that are longer than LIMIT characters.

Tables, code blocks and lines with a URL, which cannot be wrapped, may be longer.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from committed_files import committed_files

LIMIT = 120
_FENCE = re.compile(r" *(`{3,}|~{3,})")


def long_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the number and the length of each line of prose that is too long."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if match:
            if not fence:
                fence = match[1]
            elif match[1].startswith(fence):
                fence = ""
        elif not fence and len(line) > LIMIT and not line.lstrip().startswith("|") and "://" not in line:
            yield number, len(line)


def main() -> int:
    """Print the lines that are too long; return the exit status."""
    root = Path(__file__).resolve().parent.parent
    count = 0
    for name in committed_files(root, "*.md"):
        for number, length in long_lines((root / name).read_text(encoding="utf-8")):
            print(f"{name}:{number}: {length} characters")
            count += 1
    print(f"{count} lines of prose have more than {LIMIT} characters")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
