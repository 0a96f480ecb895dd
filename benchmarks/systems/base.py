"""Interface of a system under test: a server started by the harness, and clients in processes of their own.

The harness imports these modules for the server half; a worker process, run by the system's own interpreter, imports
them for the client half. So a module of ``benchmarks.systems`` imports its system only when a client connects.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

START_SECONDS = 60.0
STOP_SECONDS = 20.0
# The kinds of values.
BYTES, ARRAY, TABLE = "bytes", "array", "table"


class Unavailable(Exception):
    """A system is unavailable on this machine; the message says why."""


class Client(Protocol):
    """One process's access to a system. Created and used only in a worker."""

    def connect(self, address: str) -> None:
        """Connect to the address returned by ``Server.start``."""

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """A function that stores a value of this kind and returns a token for getting it."""
        ...

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """A function that takes a token and returns the value, of the type that was put."""
        ...

    def put_many(self, values: Sequence[bytes]) -> list[Any]:
        """Store many values in the system's fastest way."""
        ...

    def get_many(self, tokens: Sequence[Any]) -> list[bytes]:
        """Get many values in the system's fastest way."""
        ...

    def delete(self, tokens: Sequence[Any]) -> None:
        """Delete the values of these tokens."""

    def release(self) -> None:
        """Release what the last get had to keep; its value is no longer used."""

    def holds(self, token: Any) -> bool:
        """Whether a get of the token would return a value."""
        ...

    def to_text(self, token: Any) -> str:
        """Convert a token to text, for another process."""
        ...

    def from_text(self, text: str) -> Any:
        """Convert text from another process to a token."""
        ...

    def versions(self) -> dict[str, str]:
        """The versions needed to reproduce the results."""
        ...

    def close(self) -> None:
        """Close the connection."""


class ClientBase:
    """Defaults shared by most clients."""

    def put_many(self, values: Sequence[bytes]) -> list[Any]:
        """One by one: the system has no other way."""
        put = self.putter(BYTES)
        return [put(value) for value in values]

    def get_many(self, tokens: Sequence[Any]) -> list[bytes]:
        """One by one: the system has no other way."""
        get = self.getter(BYTES)
        return [get(token) for token in tokens]

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """Implemented by each system."""
        raise NotImplementedError

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """Implemented by each system."""
        raise NotImplementedError

    def release(self) -> None:
        """Nothing is kept."""

    def holds(self, token: Any) -> bool:
        """Values stay until they are deleted."""
        return True

    def to_text(self, token: Any) -> str:
        """Tokens are text already."""
        return str(token)

    def from_text(self, text: str) -> Any:
        """Tokens are text already."""
        return text

    def versions(self) -> dict[str, str]:
        """Nothing relevant."""
        return {}

    def close(self) -> None:
        """Nothing to close."""


class BytesClient(ClientBase):
    """A client of a system that stores byte strings: arrays as their bytes, tables as Arrow streams."""

    def _put(self, value: Any) -> Any:
        """Store an object with the buffer protocol; returns its token."""
        raise NotImplementedError

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """Based on ``_put``."""
        if kind == BYTES:
            return self._put
        if kind == ARRAY:
            return lambda array: self._put(memoryview(array).cast("B"))
        arrow = importlib.import_module("pyarrow")

        def put_table(table: Any) -> Any:
            sink = arrow.BufferOutputStream()
            with arrow.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            return self._put(memoryview(sink.getvalue()))

        return put_table


@dataclass(frozen=True)
class RunEnvironment:
    """Environment of a system.

    Attributes:
        folder: directory of its socket, log and files; on tmpfs, removed at the end.
        capacity: bytes that it may use.
        python: the interpreter of its environment.
        variables: the environment of its processes.
    """

    folder: Path
    capacity: int
    python: str
    variables: dict[str, str]

    @property
    def socket(self) -> Path:
        """Path of its unix socket."""
        return self.folder / "s"


class Server(Protocol):
    """The half that the harness starts. Clients connect only after the start."""

    def start(self, run_environment: RunEnvironment) -> str:
        """Start it and return the address for clients; it is ready, its memory as warm as it gets by itself.

        Raises:
            Unavailable: it is not available or did not start; the message says why.
        """
        ...

    def pids(self) -> list[int]:
        """Its current processes."""
        ...

    def stop(self) -> None:
        """Stop it and everything it started."""


class NoServer:
    """For systems that run within their clients."""

    def start(self, run_environment: RunEnvironment) -> str:
        """The address is the directory."""
        return str(run_environment.folder)

    def pids(self) -> list[int]:
        """None."""
        return []

    def stop(self) -> None:
        """Nothing to stop."""


class ProcessServer:
    """A server process with its children, in a session of its own."""

    _process: subprocess.Popen[bytes] | None = None
    _log: Path | None = None

    def launch(
        self, run_environment: RunEnvironment, command: Sequence[str], ready: Callable[[], bool], **variables: str
    ) -> None:
        """Start the command and wait until ``ready`` is true.

        Raises:
            Unavailable: it exited, or was not ready in time; the message includes the end of its log.
        """
        self._log = run_environment.folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=run_environment.folder,
                env=run_environment.variables | variables,
                start_new_session=True,
            )
        end = time.monotonic() + START_SECONDS
        while not ready():
            if self._process.poll() is not None:
                raise Unavailable(f"{command[0]} ended with code {self._process.returncode}: {self.log_end()}")
            if time.monotonic() > end:
                self.stop()
                raise Unavailable(f"{command[0]} was not ready after {START_SECONDS:.0f} s: {self.log_end()}")
            time.sleep(0.001)

    def log_end(self) -> str:
        """The end of its log."""
        if self._log is None:
            return ""
        return self._log.read_text(errors="replace")[-1500:].strip() or "(it wrote nothing)"

    def pids(self) -> list[int]:
        """The process and all its descendants."""
        if self._process is None or self._process.poll() is not None:
            return []
        return descendants(self._process.pid)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL, to the process and its descendants."""
        process = self._process
        if process is None:
            return
        family = self.pids()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in family:
            _end_leftover(pid, process.pid)
        self._process = None


def _end_leftover(pid: int, session: int) -> None:
    """Kill a process if it still belongs to our session (and is not another one with a reused ID)."""
    try:
        if os.getsid(pid) == session:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def descendants(pid: int) -> list[int]:
    """A process and all its live descendants."""
    pids = [pid]
    for parent in pids:
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
            for task in tasks:
                pids.extend(int(child) for child in (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pids


def accepts(path: Path) -> bool:
    """Whether a server is listening on a unix socket."""
    import socket

    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def make_folder(name: str) -> Path:
    """Create a private directory, on tmpfs if possible; its path is short enough for sockets."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    return Path(tempfile.mkdtemp(prefix=f"eb-{name[:8]}-", dir=parent))


def remove_folder(folder: Path) -> None:
    """Remove what make_folder created."""
    shutil.rmtree(folder, ignore_errors=True)
