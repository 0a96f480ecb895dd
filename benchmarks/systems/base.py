"""What a system under measurement is: a server that the harness starts, and clients in processes of their own.

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
# The kinds of state that are handed over.
BYTES, ARRAY, TABLE = "bytes", "array", "table"


class Unavailable(Exception):
    """A system cannot be had on this machine; the message says why."""


class Client(Protocol):
    """One process's access to a system. Made and used only in a worker."""

    def connect(self, address: str) -> None:
        """Connects to the server that ``Server.start`` returned the address of."""

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """A function that stores a value of this kind and returns a token by which it can be got."""
        ...

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """A function that takes a token and returns the value, of the type that was put."""
        ...

    def put_many(self, values: Sequence[bytes]) -> list[Any]:
        """Stores many values by the fastest way that the system has."""
        ...

    def get_many(self, tokens: Sequence[Any]) -> list[bytes]:
        """Gets many values by the fastest way that the system has."""
        ...

    def delete(self, tokens: Sequence[Any]) -> None:
        """Frees what the tokens mean."""

    def release(self) -> None:
        """Lets go of what the last get needed to keep; the value that it returned is no longer used."""

    def holds(self, token: Any) -> bool:
        """Whether a get of the token would give a value."""
        ...

    def to_text(self, token: Any) -> str:
        """A token as another process can be given it."""
        ...

    def from_text(self, text: str) -> Any:
        """A token that another process gave."""
        ...

    def versions(self) -> dict[str, str]:
        """The versions that a reader needs to repeat this."""
        ...

    def close(self) -> None:
        """Ends the connection."""


class ClientBase:
    """What most clients share."""

    def put_many(self, values: Sequence[bytes]) -> list[Any]:
        """One by one: this system has no other way."""
        put = self.putter(BYTES)
        return [put(value) for value in values]

    def get_many(self, tokens: Sequence[Any]) -> list[bytes]:
        """One by one: this system has no other way."""
        get = self.getter(BYTES)
        return [get(token) for token in tokens]

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """Each system has its own."""
        raise NotImplementedError

    def getter(self, kind: str) -> Callable[[Any], Any]:
        """Each system has its own."""
        raise NotImplementedError

    def release(self) -> None:
        """Nothing is kept."""

    def holds(self, token: Any) -> bool:
        """What was put stays until it is deleted."""
        return True

    def to_text(self, token: Any) -> str:
        """Tokens that are text need no change."""
        return str(token)

    def from_text(self, text: str) -> Any:
        """Tokens that are text need no change."""
        return text

    def versions(self) -> dict[str, str]:
        """Nothing of note."""
        return {}

    def close(self) -> None:
        """Nothing to end."""


class BytesClient(ClientBase):
    """A client of a system that keeps byte strings: arrays as their bytes, tables as Arrow streams."""

    def _put(self, value: Any) -> Any:
        """Stores what has the buffer protocol; its token."""
        raise NotImplementedError

    def putter(self, kind: str) -> Callable[[Any], Any]:
        """By ``_put``."""
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
class Place:
    """Where a system may live.

    Attributes:
        folder: for its socket, log and files; on tmpfs, removed at the end.
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
    """The half that the harness starts. ``None`` of these has clients connected when it starts."""

    def start(self, place: Place) -> str:
        """Starts it and returns the address for clients; it is ready, its memory as warm as it makes it by itself.

        Raises:
            Unavailable: it cannot be had or did not come up; the message says why.
        """
        ...

    def pids(self) -> list[int]:
        """Its processes now."""
        ...

    def stop(self) -> None:
        """Ends it and whatever it started."""


class NoServer:
    """For systems that live in their clients."""

    def start(self, place: Place) -> str:
        """The folder is the address."""
        return str(place.folder)

    def pids(self) -> list[int]:
        """None."""
        return []

    def stop(self) -> None:
        """Nothing runs."""


class ProcessServer:
    """A server that is one process with its children, in a session of its own."""

    _process: subprocess.Popen[bytes] | None = None
    _log: Path | None = None

    def launch(self, place: Place, command: Sequence[str], ready: Callable[[], bool], **variables: str) -> None:
        """Starts the command and waits until ``ready`` is true.

        Raises:
            Unavailable: it ended, or was not ready in time; the message has the end of its log.
        """
        self._log = place.folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=place.folder,
                env=place.variables | variables,
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
        """The last of what it wrote."""
        if self._log is None:
            return ""
        return self._log.read_text(errors="replace")[-1500:].strip() or "(it wrote nothing)"

    def pids(self) -> list[int]:
        """The process and all below it."""
        if self._process is None or self._process.poll() is not None:
            return []
        return descendants(self._process.pid)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL, to the process and what it started."""
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
    """Kills a process if it still is of the session that we made (and not another that got its number)."""
    try:
        if os.getsid(pid) == session:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def descendants(pid: int) -> list[int]:
    """A process and all below it that live now."""
    found = [pid]
    for parent in found:
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
            for task in tasks:
                found.extend(int(child) for child in (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def accepts(path: Path) -> bool:
    """Whether somebody listens on a unix socket."""
    import socket

    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def make_folder(name: str) -> Path:
    """A folder of ours alone, in memory where the machine has such a place; its path is short enough for sockets."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    return Path(tempfile.mkdtemp(prefix=f"eb-{name[:8]}-", dir=parent))


def remove_folder(folder: Path) -> None:
    """Removes what make_folder made."""
    shutil.rmtree(folder, ignore_errors=True)
