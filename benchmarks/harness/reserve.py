"""Keeps the machine's memory available while large values are measured.

A virtual machine may get a page from its host only when the page is first written, and may return it two seconds after
it was freed (free page reporting). Getting a page again takes twenty times as long as the kernel's own page fault, and
the first pass over such a page is often slower than all later ones, for any program, even a plain copy. So a process
holds the free memory, each page written twice, and releases what each turn needs just before it begins.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from types import TracebackType

from benchmarks.harness.machine import ROOT

MARGIN = 3 << 28  # 768 MiB kept free
PASSES = 2
CHUNK = 1 << 30
FILLING = b"\1" * (2 << 20)


class MemoryReserve:
    """A process that holds the machine's free memory."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness.reserve"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> MemoryReserve:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def make_available(self, nbytes: int) -> None:
        """Take all free memory except a margin, write the pages newly taken, and release ``nbytes`` of it."""
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


def _allocate_chunk() -> mmap.mmap:
    chunk = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory would get small pages
    chunk.madvise(mmap.MADV_HUGEPAGE)
    for _ in range(PASSES):
        for at in range(0, CHUNK, len(FILLING)):
            chunk[at : at + len(FILLING)] = FILLING
    return chunk


def _hold_memory() -> None:
    """Hold all memory except the number of free bytes requested by each input line; reply when done."""
    blocks: list[mmap.mmap] = []
    for line in sys.stdin:
        count = int(line)
        while blocks and _free() < count:
            blocks.pop().close()
        while _free() - CHUNK >= count:
            blocks.append(_allocate_chunk())
        print(len(blocks), flush=True)


if __name__ == "__main__":
    _hold_memory()
