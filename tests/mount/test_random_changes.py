"""Random changes through a mount do what they do in an ordinary folder."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest

_NAMES = ("a", "b", "c.txt", "d", "d/e", "d/f", "d/g/h", "i/j")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _patch(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(len(data) // 2)
        file.write(data)


def _two_writers(path: Path, data: bytes) -> None:
    with path.open("r+b", buffering=0) as first, path.open("ab", buffering=0) as second:
        second.write(data)
        first.write(b"first")


def _change(generator: random.Random) -> tuple[str, Callable[[Path], Any]]:
    name, other = generator.choice(_NAMES), generator.choice(_NAMES)
    data = generator.randbytes(generator.choice((0, 3, 200, 70_000)))
    size = generator.choice((0, 5, 100_000))
    changes: list[tuple[str, Callable[[Path], Any]]] = [
        (f"write {name} {len(data)}", lambda root: _write(root / name, data)),
        (f"append {name} {len(data)}", lambda root: _append(root / name, data)),
        (f"patch {name} {len(data)}", lambda root: _patch(root / name, data)),
        (f"two writers of {name} {len(data)}", lambda root: _two_writers(root / name, data)),
        (f"truncate {name} {size}", lambda root: os.truncate(root / name, size)),
        (f"unlink {name}", lambda root: os.unlink(root / name)),
        (f"rename {name} {other}", lambda root: os.rename(root / name, root / other)),
        (f"mkdir {name}", lambda root: os.mkdir(root / name)),
        (f"rmdir {name}", lambda root: os.rmdir(root / name)),
        (f"copy {name} {other}", lambda root: shutil.copyfile(root / name, root / other)),
    ]
    return generator.choice(changes)


def _outcome(change: Callable[[Path], Any], root: Path) -> int:
    try:
        change(root)
    except OSError as error:
        return error.errno or -1  # shutil's own errors have no number
    return 0


def _contents(root: Path) -> dict[str, bytes | None]:
    contents: dict[str, bytes | None] = {}
    for folder, folders, files in os.walk(root):
        for name in folders:
            contents[str(Path(folder, name).relative_to(root))] = None
        for name in files:
            path = Path(folder, name)
            contents[str(path.relative_to(root))] = path.read_bytes()
            assert path.stat().st_size == len(path.read_bytes())
    return contents


def _compare(seed: int, steps: int, root: Path, model: Path) -> None:
    generator = random.Random(seed)
    done: list[str] = []
    for _ in range(steps):
        text, change = _change(generator)
        expected, actual = _outcome(change, model), _outcome(change, root)
        done.append(f"{text}: {os.strerror(expected) if expected > 0 else expected}")
        assert actual == expected, f"seed {seed}: {os.strerror(actual)} after {done}"
        assert _contents(root) == _contents(model), f"seed {seed}: {done}"


def test_random_changes(root: Path, store: entrepot.Store, tmp_path: Path) -> None:
    _compare(1, 60, root, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_random_changes(seed: int, root: Path, store: entrepot.Store, tmp_path: Path) -> None:
    _compare(seed, 300, root, tmp_path)
