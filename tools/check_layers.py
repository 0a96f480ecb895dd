"""Holds the layers of the C++ core to their order: a layer includes only layers below it.

Also keeps the definition of a class in the folder that declares it: includes alone do not show that a header of one
layer is implemented in another.

Run without arguments from anywhere; prints each violation as ``file:line: what`` and exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Lowest first.
LAYERS = ("base", "os", "shm", "spill", "store", "net", "client", "daemon", "plasma", "bindings")
# Lower layers that are nevertheless forbidden: libentrepot contains neither store nor spilling, the daemon is not a
# client, and the front end for Plasma clients is no part of the daemon.
FORBIDDEN = {
    "client": {"spill", "store"},
    "daemon": {"client"},
    "plasma": {"spill", "store", "daemon"},
    "bindings": {"spill", "store", "daemon", "plasma"},
}
# Operating-system headers are confined to the layer `os`, so that a port affects only that layer.
SYSTEM = re.compile(
    r"^(sys/|linux/|asm/|netinet/|arpa/|(unistd|fcntl|poll|sched|signal|dirent|pwd|grp|netdb|pthread|spawn)\.h$)"
)
# System headers that files of other layers need all the same.
ALLOWED_SYSTEM = {"base/cpu.cpp": {"sys/auxv.h"}}
# The only headers of one layer that another may include.
ONLY_HEADERS = {("store", "spill"): {"spill/backend.h"}}
# The folders of the layer store, lowest first: each includes only folders before it, and these two headers.
STORE_PARTS = ("memory", "eviction", "session", "object", "stream", "gateway", "paging", "status")
STORE_LEAVES = {"store/types.h", "store/sync_point.h"}
# At the start of a line: clang-format indents what is nested, in classes and in functions.
DECLARATION = re.compile(r"^(?:class|struct) (?:\[\[\w+\]\] )?(?P<name>\w+)(?: final)?\s*(?::[^;{]*)?\{", re.MULTILINE)
DEFINITION = re.compile(r"^[A-Za-z_][^;=(\n]*?\b(?P<name>\w+)::~?\w+\(", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(?P<quoted>[^"]+)"|<(?P<angled>[^>]+)>)')


def _sources(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*") if path.suffix in {".h", ".hpp", ".cpp", ".c"})


def _judge_store(source: str, target: str) -> str | None:
    """Return the violation by an include of ``target`` in ``source``, both files of the layer store, or None."""
    folder, included = (name.split("/")[1] if name.count("/") > 1 else None for name in (source, target))
    unknown = {folder, included} - {None, *STORE_PARTS}
    if unknown:
        return f'"{target}": {min(filter(None, unknown))} is not a folder of store; those are {", ".join(STORE_PARTS)}'
    if folder is None or target in STORE_LEAVES:
        return None
    if included is None:
        return f'"{target}": a folder of store includes no header of store itself but {", ".join(sorted(STORE_LEAVES))}'
    if STORE_PARTS.index(included) > STORE_PARTS.index(folder):
        return f'"{target}": store/{included} is above store/{folder}'
    return None


def _judge(layer: str | None, source: str, quoted: str | None, angled: str | None) -> str | None:
    """Return the violation by an include in ``source`` of ``layer`` (None: the public headers), or None."""
    if angled is not None:
        if angled.startswith(("arrow/", "parquet/")):
            return f"<{angled}>: the core does not link Arrow; it speaks the Arrow C data interface"
        if layer not in (None, "os") and SYSTEM.match(angled) and angled not in ALLOWED_SYSTEM.get(source, set()):
            return f"<{angled}>: headers of the operating system are included only in the layer os"
        return None
    assert quoted is not None
    target = quoted.partition("/")[0]
    if target == "entrepot":
        return None
    if layer is None:
        return f'"{quoted}": a public header includes only entrepot/... and standard headers'
    if target not in LAYERS or "/" not in quoted:
        return f'"{quoted}": includes are written from core/src, as "layer/header.h"'
    if LAYERS.index(target) > LAYERS.index(layer):
        return f'"{quoted}": {target} is above {layer}'
    if target in FORBIDDEN.get(layer, set()):
        return f'"{quoted}": {layer} may not include {target}'
    only = ONLY_HEADERS.get((layer, target))
    if only is not None and quoted not in only:
        return f'"{quoted}": {layer} includes of {target} only {", ".join(sorted(only))}'
    return _judge_store(source, quoted) if layer == target == "store" else None


def _misplaced_definitions(root: Path) -> list[str]:
    """Methods that are defined outside the folder that declares their class, as ``file:line: what``."""
    sources = root / "core/src"
    folders_by_class: dict[str, set[Path]] = {}
    for path in _sources(sources):
        if path.suffix in {".h", ".hpp"}:
            for match in DECLARATION.finditer(path.read_text(encoding="utf-8")):
                folders_by_class.setdefault(match["name"], set()).add(path.parent)
    lines = []
    for path in _sources(sources):
        text = path.read_text(encoding="utf-8")
        for match in DEFINITION.finditer(text):
            folders = folders_by_class.get(match["name"], {path.parent})
            if path.parent not in folders:
                line = text.count("\n", 0, match.start()) + 1
                places = ", ".join(sorted(folder.relative_to(sources).as_posix() for folder in folders))
                lines.append(
                    f"{path.relative_to(root)}:{line}: {match['name']} is declared in {places}: define it there"
                )
    return lines


def violations(root: Path) -> list[str]:
    """Every violation under ``root`` (the repository), as ``file:line: what``."""
    lines: list[str] = []
    places: list[tuple[str | None, Path]] = [(None, root / "core/include")]
    if (root / "core/src").is_dir():
        for folder in sorted(path for path in (root / "core/src").iterdir() if path.is_dir()):
            if folder.name in LAYERS:
                places.append((folder.name, folder))
            else:
                lines.append(f"{folder.relative_to(root)}: not a layer; layers are {', '.join(LAYERS)}")
    for layer, folder in places:
        for path in _sources(folder):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(root)
            source = path.relative_to(folder.parent).as_posix()
            if path.suffix in {".h", ".hpp"} and "#pragma once" not in text:
                lines.append(f"{name}:1: a header begins with #pragma once")
            for number, line in enumerate(text.splitlines(), start=1):
                match = INCLUDE.match(line)
                if match is None:
                    continue
                wrong = _judge(layer, source, match["quoted"], match["angled"])
                if wrong is not None:
                    lines.append(f"{name}:{number}: {wrong}")
    return lines + _misplaced_definitions(root)


def main() -> int:
    """Check the repository, or the one named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    lines = violations(parser.parse_args().root)
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
