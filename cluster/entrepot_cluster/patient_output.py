"""Standard output and error of a process that must not wait for whoever reads them.

A pipe that nobody empties, a terminal stopped with Ctrl-S or a log driver that does not respond blocks a write for as
long as it likes. So lines are handed to a thread that writes them; if it does not keep up, further lines are dropped,
and counted. Descriptors 0 to 2 that are closed are opened on ``/dev/null``: otherwise the next file or socket would get
such a number, and whatever a library prints would be written into it.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MAX_BYTES = 128 << 10  # that wait to be written, as in the daemon
DRAIN_SECONDS = 2.0  # for the last lines of a process


class PatientOutput(io.TextIOBase):
    """A text stream whose lines a thread writes to a descriptor.

    keeping ──no room for a line──▶ dropping ──the thread could write──▶ keeping (a line says how many miss)

    A line that cannot be written, because the disk is full or the reader of the pipe is gone, counts as dropped.

    Args:
        descriptor: an open one; it stays open.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._changed = threading.Condition()  # reentrant: signal handlers log, too
        self._line = ""  # the beginning of one that has not ended; guarded by _changed, like all that follows
        self._waiting: deque[bytes] = deque()
        self._nbytes = 0  # of those in _waiting, and of the one that is being written
        self._dropped = 0
        threading.Thread(target=self._write_all, name=f"output-{descriptor}", daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """UTF-8; what cannot be encoded is escaped."""
        return "utf-8"

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str, /) -> int:
        """Have the lines written that end in this text; never waits."""
        with self._changed:
            *lines, self._line = (self._line + text).split("\n")
            for line in lines:
                self._add(f"{line}\n".encode("utf-8", "backslashreplace"))
        return len(text)

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Wait until everything is written, but no longer than this."""
        end = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: not self._nbytes, max(0.0, end - time.monotonic()))

    def _add(self, line: bytes) -> None:
        if self._nbytes + len(line) > MAX_BYTES:
            self._dropped += 1
            return
        self._say_what_is_missing()
        self._waiting.append(line)
        self._nbytes += len(line)
        self._changed.notify_all()

    def _say_what_is_missing(self) -> None:
        if self._dropped:
            note = f"{self._dropped} lines are missing here: they could not be written\n".encode()
            self._dropped = 0
            self._waiting.append(note)
            self._nbytes += len(note)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                line = self._waiting.popleft()
            is_written = self._write_line(line)
            with self._changed:
                self._nbytes -= len(line)
                if not is_written:
                    self._dropped += 1
                elif not self._waiting:
                    self._say_what_is_missing()
                self._changed.notify_all()

    def _write_line(self, line: bytes) -> bool:
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:  # there is nowhere to report it; the number of missing lines is
            return False
        return True


@contextmanager
def patient_output() -> Iterator[Callable[[], None]]:
    """Replace ``sys.stdout`` and ``sys.stderr``; yields what waits, for a limited time, until all is written."""
    open_standard_descriptors()
    previous = sys.stdout, sys.stderr
    outputs = PatientOutput(1), PatientOutput(2)
    sys.stdout, sys.stderr = outputs

    def drain() -> None:
        end = time.monotonic() + DRAIN_SECONDS
        for output in outputs:
            output.drain(end - time.monotonic())

    try:
        yield drain
    finally:
        drain()
        sys.stdout, sys.stderr = previous


def open_standard_descriptors() -> None:
    """Open those of the descriptors 0 to 2 that are closed on ``/dev/null``."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:  # os.open sets close-on-exec, which a duplicate that may be inherited does not have
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
