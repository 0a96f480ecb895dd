"""Report names that two sources of one target define in anonymous namespaces.

The presets ``asan`` and ``tsan`` compile several sources of a target as one, where such names clash: this reports them
without a sanitizer build. Constants and types count by name, functions by name and parameters. A source with
``SKIP_UNITY_BUILD_INCLUSION`` is compiled alone and may define what it likes.

Run without arguments from anywhere; prints each clash as ``file:line: what`` and exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

OPEN, CLOSE = "namespace {", "}  // namespace"
CONSTANT = re.compile(r"^(?:inline |static )?(?:constexpr|const) [^()=]*?\b(\w+)(?:\{|\[| =)")
TYPE = re.compile(r"^(?:struct|class|enum class) (\w+)\b(?!.*;$)")
FUNCTION = re.compile(
    r"^(?!return|using|else|struct|class|alignas)\w[\w:<>,&* \[\]]*?[ &*](\w+)\(((?:[^()]|\([^()]*\))*)\)[^;]*\{$", re.M
)
PARAMETER_NAME = re.compile(r"\b\w+\s*(?:=[^,]*)?(?=,|$)")


def _anonymous(text: str) -> Iterator[tuple[int, str]]:
    """Yield the text of each anonymous namespace at file level, with the number of its first line."""
    lines = text.splitlines()
    begin: int | None = None
    for number, line in enumerate(lines, start=1):
        if line == OPEN:
            begin = number
        elif line == CLOSE and begin is not None:
            yield begin, "\n".join(lines[begin : number - 1])
            begin = None


def names(text: str) -> Iterator[tuple[int, str]]:
    """Yield what a source defines in anonymous namespaces: line number and name, with parameter types for functions."""
    for first, body in _anonymous(text):
        for offset, line in enumerate(body.splitlines(), start=1):
            if match := CONSTANT.match(line) or TYPE.match(line):
                yield first + offset, match[1]
        for match in FUNCTION.finditer(body):
            types = PARAMETER_NAME.sub("", re.sub(r"\s+", " ", match[2]))
            yield first + body.count("\n", 0, match.start(1)) + 1, f"{match[1]}({re.sub(r' *, *', ',', types).strip()})"


def _targets(folder: Path) -> Iterator[list[str]]:
    """Yield the sources of each target that the directory's CMakeLists.txt makes."""
    cmake = folder / "CMakeLists.txt"
    text = cmake.read_text(encoding="utf-8") if cmake.exists() else ""
    alone = set(re.findall(r"[\w.]+\.cpp", " ".join(re.findall(r"\(([^)]*SKIP_UNITY_BUILD_INCLUSION[^)]*)\)", text))))
    for call in re.findall(
        r"(?:entrepot_library|entrepot_test|add_library|add_executable|nanobind_add_module)\(([^)]*)\)", text
    ):
        yield [name for name in re.findall(r"[\w./]+\.cpp", call) if name not in alone]


def clashes(root: Path) -> list[str]:
    """Return every clash under ``root`` (the repository), as ``file:line: what``."""
    lines: dict[str, None] = {}
    for folder in sorted({path.parent for part in ("core/src", "core/tests") for path in (root / part).rglob("*.cpp")}):
        for sources in _targets(folder):
            seen: dict[str, Path] = {}
            for path in (source for name in sources if (source := folder / name).exists()):
                for number, name in names(path.read_text(encoding="utf-8")):
                    other = seen.setdefault(name, path)
                    if other != path:
                        places = f"{path.relative_to(root)}:{number}: {name} is also in an anonymous namespace of"
                        lines[f"{places} {other.name}: rename it, or share it in a header"] = None
    return list(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    lines = clashes(parser.parse_args().root)
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
