"""Processes beside a store, such as front ends and gateways: started in the background, found by their command line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from entrepot._daemon.launcher import START_SECONDS, is_running, tail_of
from entrepot.errors import StoreUnavailable

END_SECONDS = 5.0
SUPERVISED = "--keep-running"  # what is started in the background starts itself again when it dies


def start_in_background(command: Sequence[str], what: str, log: Path, is_ready: Callable[[], bool]) -> None:
    """Start a detached process, and wait until it is ready.

    Args:
        command: the program and its arguments.
        what: the program and where it serves, for messages.
        log: file to append its output to.
        is_ready: whether it is.

    Raises:
        StoreUnavailable: it exited, or was not ready within 20 seconds; the message has the end of its log.
    """
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(log, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
        offset = out.tell()
        process = subprocess.Popen(
            # The shell puts it in the background and passes on how it ended if that was at once.
            [shutil.which("sh") or "/bin/sh", "-c", '"$@" >&2 & echo $!', Path(command[0]).name, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=out,
            cwd="/",
            start_new_session=True,
            text=True,
        )
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.wait()
        process.stdout.close()
    end = time.monotonic() + START_SECONDS
    while not is_ready():
        exited = not is_running(pid)
        if exited or time.monotonic() > end:
            outcome = "exited before it was ready" if exited else f"was not ready within {START_SECONDS:.0f} s"
            raise StoreUnavailable(f"{what} {outcome}; the end of its log ({log}): {tail_of(log, offset)}")
        time.sleep(0.01)


def command_line(pid: int) -> list[str]:
    """The command line of a process of this user; empty if it is another user's, or has begun to exit."""
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.getuid():
            return []
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        return []


def processes(is_one: Callable[[list[str]], bool]) -> dict[int, list[str]]:
    """This user's processes whose command line satisfies a condition, and their command lines."""
    lines = {int(name): command_line(int(name)) for name in os.listdir("/proc") if name.isdecimal()}
    return {pid: words for pid, words in lines.items() if words and is_one(words)}


def terminate_supervised(running: dict[int, list[str]]) -> None:
    """Tell those that run in the background to end."""
    for pid, words in running.items():
        if SUPERVISED in words:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def wait_ended(pids: Iterable[int]) -> list[int]:
    """Wait until processes have exited.

    Returns:
        those that still run after 5 seconds: something keeps them from it, such as SIGSTOP.
    """
    end = time.monotonic() + END_SECONDS
    while remaining := [pid for pid in pids if is_running(pid)]:
        if time.monotonic() > end:
            return remaining
        time.sleep(0.01)
    return []
