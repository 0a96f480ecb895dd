"""Keeps the machine's memory at hand while large values are measured.

A virtual machine may get a page from its host only when the page is written for the first time, and may give it back
two seconds after it was freed (free page reporting). Getting a page again takes twenty times as long as the kernel's
own page fault, and the first pass over such a page is often slower than all later ones, whoever makes it: a plain copy
has the same. So a process holds the free memory, each page written twice, and hands over to each turn what the turn
needs just before it begins.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from types import TracebackType

from benchmarks.machine import ROOT

MARGIN = 3 << 28  # 768 MiB that nobody holds
PASSES = 2
CHUNK = 1 << 30
FILLING = b"\1" * (2 << 20)


class Reserve:
    """A process that holds the machine's free memory."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.reserve"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Reserve:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def lend(self, nbytes: int) -> None:
        """Takes all free memory but a margin, writes what is new of it, and hands over so many bytes of it."""
        self._hold(MARGIN)
        self._hold(MARGIN + nbytes)

    def _hold(self, free: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(free, file=self._process.stdin, flush=True)
        if not self._process.stdout.readline():
            raise RuntimeError("the process that holds the machine's memory has ended")


def _free() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _taken() -> mmap.mmap:
    chunk = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory gets small pages
    chunk.madvise(mmap.MADV_HUGEPAGE)
    for _ in range(PASSES):
        for at in range(0, CHUNK, len(FILLING)):
            chunk[at : at + len(FILLING)] = FILLING
    return chunk


def _serve() -> None:
    """Holds as much as leaves the number of bytes that each line asks for; answers when that is so."""
    held: list[mmap.mmap] = []
    for line in sys.stdin:
        wanted = int(line)
        while held and _free() < wanted:
            held.pop().close()
        while _free() - CHUNK >= wanted:
            held.append(_taken())
        print(len(held), flush=True)


if __name__ == "__main__":
    _serve()
