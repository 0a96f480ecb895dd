"""Keeps FIFOs from ending if ``entrepot pipe run`` is killed: run as a program of its own, by :class:`FifoGuard`.

When a process is killed, the kernel closes its files before it tells anybody, so that a program that reads a FIFO could
take that for the end of the data. The guard has the writing ends as well, and lets go of them only when it is told to,
or when it has killed the program.

The guard has a socket from ``pipe run``. Messages: ``+``, with a descriptor: keep it; ``-`` and an inode: close it;
``p`` and a number: the process group (or, negated, process) to kill. The end of the connection without ``.``: kill it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

_END_SECONDS = 10.0


class FifoGuard:
    """The guard's process. A context manager; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # around a message and its answer
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            # Without site-packages, because it starts faster; in a session of its own, so that it outlives this one.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def watch(self, pid: int, group: bool) -> None:
        """Name the program: its process, or the group that this leads."""
        self._socket.send(b"p%d" % (pid if group else -pid))

    def keep(self, descriptor: int) -> None:
        """Keep a writing end open; until the guard has it, this waits."""
        with self._lock:
            socket.send_fds(self._socket, [b"+"], [descriptor])
            self._socket.recv(1)

    def release(self, descriptor: int) -> None:
        """Close a writing end, here and in the guard: the program sees the end of the data."""
        number = os.fstat(descriptor).st_ino
        with self._lock, suppress(OSError):  # the guard is gone, and so are its descriptors
            self._socket.send(b"-%d" % number)
            self._socket.recv(1)
        os.close(descriptor)

    def __enter__(self) -> FifoGuard:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.send(b".")
        self._socket.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def guard(connection: socket.socket) -> None:
    """Keep descriptors as told; at the end of the connection, kill the program."""
    kept: dict[int, int] = {}  # descriptors by inode
    program = 0
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 64, 1)
        kind, rest = message[:1], message[1:]
        if kind == b".":
            return
        if kind == b"p":
            program = int(rest)
        elif kind == b"+":
            kept[os.fstat(descriptors[0]).st_ino] = descriptors[0]
            connection.send(b"+")
        elif kind == b"-":
            os.close(kept.pop(int(rest)))
            connection.send(b"-")
        else:
            break
    with suppress(ProcessLookupError):
        if program > 0:
            os.killpg(program, signal.SIGKILL)
        elif program < 0:
            os.kill(-program, signal.SIGKILL)


if __name__ == "__main__":
    guard(socket.socket(fileno=int(sys.argv[1])))
