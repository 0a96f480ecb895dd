"""Child processes of the demo: each in a session of its own, with a log, and terminated with all its descendants.

(started) --exits--> (ended)
    |                   ^
    +-- stop: SIGTERM, then after a grace period SIGKILL, to it, its group and all its descendants
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

_PR_SET_CHILD_SUBREAPER = 36
LOG_TAIL_LINES = 40


class DemoError(RuntimeError):
    """Something that the demo runs failed; the message says what, and includes the end of its log."""


def adopt_orphans() -> None:
    """Make this process the reaper of orphaned descendants, so that none of them is lost."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def kill_orphans() -> int:
    """Kill all remaining descendants, at exit; returns how many there were."""
    orphans = psutil.Process().children(recursive=True)
    _kill(orphans)
    return len(orphans)


def free_port() -> int:
    """A TCP port of the loopback address that is currently free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tail(path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines of a log."""
    try:
        log_lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(f"    {line}" for line in log_lines[-lines:])


class Child:
    """A process of the demo; a context manager that stops it.

    Args:
        name: for messages.
        command: its program and arguments.
        log: file for its output.
        environment: its complete environment.
        folder: its working directory.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; ``None`` while it runs."""
        return self._process.poll()

    def wait(self, timeout: float) -> None:
        """Wait until it has exited successfully.

        Raises:
            DemoError: it failed, or still runs after ``timeout`` seconds.
        """
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.failure(f"still running after {timeout:.0f} s") from None
        if code != 0:
            raise self.failure(f"exited with code {code}")

    def wait_for(self, ready: Callable[[], bool], description: str, timeout: float, *, interval: float = 0.2) -> None:
        """Wait until ``ready`` returns true, while the process runs.

        Raises:
            DemoError: it has exited, or it is not ready after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not ready():
            if self.code is not None:
                raise self.failure(f"exited with code {self.code} while waiting for {description}")
            if time.monotonic() > deadline:
                raise self.failure(f"timed out after {timeout:.0f} s waiting for {description}")
            time.sleep(interval)

    def failure(self, problem: str) -> DemoError:
        """An error about this process, with the end of its log."""
        return DemoError(f"{self.name}: {problem}. End of {self.log}:\n{tail(self.log)}")

    def stop(self, grace: float = 15.0) -> None:
        """Stop it and all its descendants; does nothing if it has exited already."""
        descendants: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            descendants = psutil.Process(self.pid).children(recursive=True)
        if self.code is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        # psutil compares start times, so a reused process ID is left alone.
        _kill([*descendants, *self._session_processes()])
        self._process.wait()

    def _session_processes(self) -> list[psutil.Process]:
        """Descendants of the demo in this child's session, including any that it started just before its end."""
        members = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(process.pid) == self.pid:
                    members.append(process)
        return members

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()


def _kill(processes: Sequence[psutil.Process], grace: float = 3.0) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=grace)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=grace)
