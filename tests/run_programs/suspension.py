"""Suspending a process: SIGSTOP, and then a wait until it holds.

A signal that was sent is not a process that stands still: one of its threads has to be scheduled to take the signal,
and until then the others go on, and answer. On a busy machine that takes long enough to change the outcome of a test.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WATCHDOG_SECONDS = 60.0
STANDING_STILL = frozenset("TtZX")  # stopped, traced, or at its end


def state_of(pid: int, thread: int | None = None) -> str:
    """The state's letter of a process, or of one of its threads, as in proc_pid_stat(5)."""
    folder = Path(f"/proc/{pid}") if thread is None else Path(f"/proc/{pid}/task/{thread}")
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]


def _stands_still(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):  # the process, or a thread, has come to its end
        threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
        for thread in threads:
            with suppress(FileNotFoundError, ProcessLookupError):
                if state_of(pid, thread) not in STANDING_STILL:
                    return False
    return True


def suspend(pid: int) -> None:
    """Send SIGSTOP and wait until every thread of the process stands still."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + WATCHDOG_SECONDS
    while not _stands_still(pid):
        if time.monotonic() > end:
            raise AssertionError(f"process {pid} did not stop within {WATCHDOG_SECONDS:g} s of SIGSTOP")
        time.sleep(0.001)


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Suspend a process for the block, which may kill it."""
    suspend(pid)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # the test has killed it
            os.kill(pid, signal.SIGCONT)
