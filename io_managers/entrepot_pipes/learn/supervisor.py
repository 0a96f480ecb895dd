"""Answers the calls of a program that ``launcher`` started: lets them go on, or puts a pipe in a file's place."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import fnmatch
import os
import platform
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from entrepot.errors import EntrepotError, InvalidArgument, Timeout

from entrepot_pipes.learn.launcher import CALLS

_RECEIVE, _SEND, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
_CONTINUE, _ADD_AND_SEND = 1, 2
_NOTIFICATION = struct.Struct("QIIiIQ6Q")
_NAMES = {number: name for name, number in CALLS.get(platform.machine(), {}).items()}
_PATH_FIRST = frozenset({"open", "stat", "lstat", "creat", "rename", "unlink"})
_AT_CWD = -100
_END_SECONDS = 10.0


class NoNotifications(EntrepotError, OSError):
    """The kernel does not tell about the calls of other programs here."""

    code = "no_notifications"
    short_code = "E415"


@dataclass(frozen=True)
class Call:
    """A call about the data file."""

    name: str
    path: str
    pid: int
    flags: int  # of an open

    @property
    def opens(self) -> bool:
        """Whether it opens the file."""
        return self.name in ("open", "openat", "creat")

    @property
    def program(self) -> str:
        """The calling program."""
        try:
            return os.readlink(f"/proc/{self.pid}/exe")
        except OSError:
            return f"process {self.pid}"


Answer = Callable[[Call], "int | None"]
"""Returns the descriptor that the program gets instead of the file, which is closed here then; ``None``: go on."""


def run_supervised(words: list[str], pattern: str, answer: Answer, timeout: float) -> int:
    """Run a program; ``answer`` is asked, in a thread, about each of its calls about files that match ``pattern``.

    Returns:
        its exit code.

    Raises:
        NoNotifications: the kernel or a container forbids it.
        InvalidArgument: there is no such program.
        Timeout: it did not end in time, and was killed.
    """
    if shutil.which(words[0]) is None:
        raise InvalidArgument(f"there is no program {words[0]!r}: give the command that runs the tests, after --")
    own_end, launcher_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launcher = Path(__file__).with_name("launcher.py")
    with own_end:
        with launcher_end:
            command = [sys.executable, "-I", "-S", os.fspath(launcher), str(launcher_end.fileno()), *words]
            process = subprocess.Popen(command, pass_fds=[launcher_end.fileno()], start_new_session=True)
        try:
            message, descriptors, _, _ = socket.recv_fds(own_end, 1000, 1)
            if not descriptors:
                process.wait(timeout)
                raise NoNotifications(
                    f"the kernel does not tell about the calls of {words[0]!r}: {message[1:].decode() or 'it ended'}."
                    " Linux 5.14 or newer is needed, and a container that allows seccomp"
                )
            supervisor = _Supervisor(descriptors[0], pattern, answer)
            own_end.send(b"+")
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise Timeout(f"{words[0]!r} did not end within {timeout:g} s and was killed (--timeout)") from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                supervisor.close()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class _Supervisor:
    """A thread that answers until nobody is left who could ask."""

    def __init__(self, listener: int, pattern: str, answer: Answer) -> None:
        self._listener = listener
        self._pattern = pattern
        self._answer = answer
        self._waiting: list[threading.Thread] = []  # used by the thread, and by close after its end
        self._stopping, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._run, name="supervisor of calls", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, when the program has ended."""
        os.close(self._stop)
        self._thread.join(_END_SECONDS)
        # Kernels before 6.11 let it wait for ever for a call whose caller was killed meanwhile.
        if not self._thread.is_alive():
            os.close(self._stopping)
            os.close(self._listener)
            for thread in self._waiting:
                thread.join()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._stopping, select.POLLIN)
        while True:
            events = dict(poller.poll())
            if self._stopping in events or not events.get(self._listener, 0) & select.POLLIN:
                return
            buffer = bytearray(_NOTIFICATION.size)
            try:
                fcntl.ioctl(self._listener, _RECEIVE, buffer)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):  # the caller was killed meanwhile
                    continue
                return
            number, pid, _, call, _, _, *arguments = _NOTIFICATION.unpack(buffer)
            about_file = self._call_about_file(call, pid, arguments)
            if about_file is None:
                self._go_on(number)
                continue
            thread = threading.Thread(target=self._decide, args=(number, about_file), daemon=True)
            self._waiting = [each for each in self._waiting if each.is_alive()]
            self._waiting.append(thread)
            thread.start()

    def _call_about_file(self, number: int, pid: int, arguments: list[int]) -> Call | None:
        """The call, if it is about the data file."""
        name = _NAMES.get(number, "")
        try:
            if name == "lseek":
                path = os.readlink(f"/proc/{pid}/fd/{ctypes.c_int(arguments[0]).value}")
            else:
                first = name in _PATH_FIRST
                text = _text_at(pid, arguments[0 if first else 1])
                base = _AT_CWD if first else ctypes.c_int(arguments[0]).value
                folder = f"/proc/{pid}/cwd" if base == _AT_CWD else f"/proc/{pid}/fd/{base}"
                path = text if text.startswith("/") else os.path.join(os.readlink(folder), text)
        except OSError:  # it was killed, or gave an address that is none
            return None
        path = os.path.normpath(path)
        if not fnmatch.fnmatchcase(path, self._pattern):
            return None
        flags = {"open": arguments[1], "openat": arguments[2], "creat": os.O_WRONLY | os.O_CREAT | os.O_TRUNC}
        return Call(name, path, pid, flags.get(name, 0))

    def _decide(self, number: int, call: Call) -> None:
        descriptor = self._answer(call)
        if descriptor is None:
            self._go_on(number)
            return
        close_on_exec = call.flags & os.O_CLOEXEC
        request = bytearray(struct.pack("QIIII", number, _ADD_AND_SEND, descriptor, 0, close_on_exec))
        with suppress(OSError):  # the caller was killed
            fcntl.ioctl(self._listener, _ADD_DESCRIPTOR, request)
        os.close(descriptor)

    def _go_on(self, number: int) -> None:
        with suppress(OSError):  # the caller was killed
            fcntl.ioctl(self._listener, _SEND, bytearray(struct.pack("QqiI", number, 0, 0, _CONTINUE)))


def _text_at(pid: int, address: int) -> str:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        text = b""
        while b"\0" not in text and len(text) < 4096:
            # Not beyond a page that may be the last one.
            part = memory.read(4096 - (address + len(text)) % 4096)
            if not part:
                break
            text += part
    return os.fsdecode(text.partition(b"\0")[0])
