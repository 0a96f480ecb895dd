"""Journal of a soak worker, and the content of each key."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np


def content(key: str, size: int) -> np.ndarray:
    """Return the bytes that an object with this key must have; they depend only on the key."""
    return np.frombuffer(np.random.Generator(np.random.SFC64(zlib.crc32(key.encode()))).bytes(size), dtype=np.uint8)


@dataclass(slots=True)
class KeyState:
    """State of one key according to a journal."""

    size: int
    put_done: bool = False
    delete_begun: bool = False
    delete_done: bool = False

    @property
    def must_exist(self) -> bool:
        return self.put_done and not self.delete_begun

    @property
    def must_not_exist(self) -> bool:
        return self.delete_done


class Journal:
    """Append each line with one write, so that a kill leaves whole lines or none."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._fd, (" ".join(str(word) for word in words) + "\n").encode())


def read_journal(path: Path) -> dict[str, KeyState]:
    """Return the state of every key; skip an incomplete last line, which is just being written."""
    states: dict[str, KeyState] = {}
    text = path.read_text() if path.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        word, key, *rest = line.split(" ")
        if word == "P":
            states[key] = KeyState(int(rest[0]))
        elif word == "p":
            states[key].put_done = True
        elif word == "D":
            states[key].delete_begun = True
        elif word == "d":
            states[key].delete_done = True
    return states


def recent_sizes(path: Path, max_bytes: int = 1 << 15) -> dict[str, int]:
    """Sizes of the keys that were put last: a journal of hours is too long to be read at each step."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - max_bytes))
        lines = file.read().decode().splitlines()[1:-1]  # the first and last line may be incomplete
    words = [line.split(" ") for line in lines]
    return {fields[1]: int(fields[2]) for fields in words if fields[0] == "P"}


def count_compared(path: Path) -> int:
    """Number of values that the worker compared, except those that a kill left uncounted."""
    return sum(int(line[2:]) for line in path.read_text().splitlines() if line.startswith("V "))


def violations(path: Path) -> list[str]:
    """Violations found by the worker itself."""
    return [line[2:] for line in path.read_text().splitlines() if line.startswith("E ")]
