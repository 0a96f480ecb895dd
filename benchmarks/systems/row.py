"""The limit of a get of small bytes in Python: a dictionary lookup, and a slice of a memory map.

Nothing that returns ``bytes`` from shared memory can do less. It is not a store: readers must be told the location of
everything, nothing is ever freed, and there is only one writer.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.systems.base import BYTES, ClientBase

FILE_BYTES = 256 << 20


class LookupClient(ClientBase):
    """Rows, one after the other, in a mapped file; a token is ``key:offset:length``."""

    def connect(self, address: str) -> None:
        """Map the file."""
        path = Path(address) / "rows"
        with path.open("a+b") as file:
            file.truncate(FILE_BYTES)
            self._map = mmap.mmap(file.fileno(), FILE_BYTES)
        self._end = 0
        self._rows: dict[bytes, tuple[int, int]] = {}

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """Copies the bytes after the last row; wraps around at the end of the file."""
        if kind != BYTES:
            raise ValueError("rows are measured with bytes only")
        return self._put

    def _put(self, value: bytes) -> bytes:
        token = os.urandom(20)
        begin = self._end if self._end + len(value) <= FILE_BYTES else 0
        self._end = begin + len(value)
        self._map[begin : self._end] = value
        self._rows[token] = (begin, self._end)
        return token

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """Looks up the key and slices the map."""
        return self._get

    def _get(self, token: bytes) -> bytes:
        begin, end = self._rows[token]
        return self._map[begin:end]

    def delete(self, tokens: Sequence[Any]) -> None:
        """Drop the keys."""
        for token in tokens:
            del self._rows[token]

    def to_text(self, token: Any) -> str:
        """With its location, since nobody else knows it."""
        begin, end = self._rows[token]
        return f"{token.hex()}:{begin}:{end}"

    def from_text(self, text: str) -> Any:
        """Record its location."""
        key, begin, end = text.split(":")
        token = bytes.fromhex(key)
        self._rows[token] = (int(begin), int(end))
        return token

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()
