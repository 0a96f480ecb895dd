"""Holds the rooms of the C++ core to their order: a room includes only rooms to its left.

Run without arguments from anywhere; prints each violation as ``file:line: what`` and exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOMS = ("base", "os", "shm", "store", "meta", "net", "client", "daemon", "bindings")
# Layers to the left that are nevertheless forbidden: libentrepot contains neither store nor metadata services, and the
# daemon is not a client.
FORBIDDEN = {
    "client": {"store", "meta"},
    "daemon": {"client"},
    "bindings": {"store", "meta", "daemon"},
}
# Operating-system headers are confined to the layer `os`, so that a port affects only that layer.
SYSTEM = re.compile(
    r"^(sys/|linux/|asm/|netinet/|arpa/|(unistd|fcntl|poll|sched|signal|dirent|pwd|grp|netdb|pthread|spawn)\.h$)"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(?P<quoted>[^"]+)"|<(?P<angled>[^>]+)>)')


def _sources(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*") if path.suffix in {".h", ".hpp", ".cpp", ".c"})


def _judge(room: str | None, quoted: str | None, angled: str | None) -> str | None:
    """What is wrong with one include of a file in layer ``room`` (None: the public headers), or None."""
    if angled is not None:
        if angled.startswith(("arrow/", "parquet/")):
            return f"<{angled}>: the core does not link Arrow; it speaks the Arrow C data interface"
        if room not in (None, "os") and SYSTEM.match(angled):
            return f"<{angled}>: headers of the operating system are included only in the room os"
        return None
    assert quoted is not None
    target = quoted.partition("/")[0]
    if target == "entrepot":
        return None
    if room is None:
        return f'"{quoted}": a public header includes only entrepot/... and standard headers'
    if target not in ROOMS or "/" not in quoted:
        return f'"{quoted}": includes are written from core/src, as "room/header.h"'
    if ROOMS.index(target) > ROOMS.index(room):
        return f'"{quoted}": {target} stands to the right of {room}'
    if target in FORBIDDEN.get(room, set()):
        return f'"{quoted}": {room} may not include {target}'
    return None


def violations(root: Path) -> list[str]:
    """Every violation under ``root`` (the repository), as ``file:line: what``."""
    found: list[str] = []
    places: list[tuple[str | None, Path]] = [(None, root / "core/include")]
    if (root / "core/src").is_dir():
        for folder in sorted(path for path in (root / "core/src").iterdir() if path.is_dir()):
            if folder.name in ROOMS:
                places.append((folder.name, folder))
            else:
                found.append(f"{folder.relative_to(root)}: not a room; rooms are {', '.join(ROOMS)}")
    for room, folder in places:
        for path in _sources(folder):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(root)
            if path.suffix in {".h", ".hpp"} and "#pragma once" not in text:
                found.append(f"{name}:1: a header begins with #pragma once")
            for number, line in enumerate(text.splitlines(), start=1):
                match = INCLUDE.match(line)
                if match is None:
                    continue
                wrong = _judge(room, match["quoted"], match["angled"])
                if wrong is not None:
                    found.append(f"{name}:{number}: {wrong}")
    return found


def main() -> int:
    """Check the repository, or the one named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    found = violations(parser.parse_args().root)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
