"""Log of a store in a small pipe that is read at times, or never."""

from __future__ import annotations

import fcntl
import os
import re
import select
import threading
from contextlib import suppress
from pathlib import Path

PIPE_BYTES = 4096
DROPPED = re.compile(rb" (\d+) lines of this log were dropped")


class UnreadLog:
    """Pipe that is full from the start, so that the store's first line does not fit.

    ``writer`` is for the store; close it here once the store has it. What is read goes to a file.
    """

    def __init__(self, path: Path) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.write(self.writer, b"." * (PIPE_BYTES - 1) + b"\n")
        self.path = path
        self.reads = threading.Event()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with self.path.open("wb", buffering=0) as file:
            while True:
                if not self.reads.wait(0.1) and not self.ended.is_set():
                    continue
                if not select.select([self.reader], [], [], 0.1)[0]:
                    if self.ended.is_set():
                        return  # another process still holds the other end, but writes nothing
                    continue
                piece = os.read(self.reader, 1 << 16)
                if not piece:
                    return
                file.write(piece)

    def end(self) -> None:
        """Read the rest, once the store has ended."""
        self.ended.set()
        self.thread.join(20)
        with suppress(OSError):
            os.close(self.reader)

    def lines_dropped(self) -> int:
        """Number of dropped lines according to the lines that were read."""
        return sum(int(count) for count in DROPPED.findall(self.path.read_bytes()))
