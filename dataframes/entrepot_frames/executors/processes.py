"""Ranks as processes of this host, which end when the executor's process does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from typing import Any

from entrepot_frames.executors.messages import Died, RankSetup, Reply, Task
from entrepot_frames.executors.workers import Workers

# How long a rank may take to end by itself once it is told to.
END_SECONDS = 5.0


class ProcessWorkers(Workers):
    """Child processes, each with one end of a socket pair: whoever dies, the other end reads the end of the file.

    A rank is a fresh interpreter, neither forked nor importing the program's ``__main__`` again, so that it works in
    notebooks and without ``if __name__ == "__main__"``.

    Args:
        threads: of Polars and Arrow in each rank.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # by rank, as the next
        self._connections: dict[int, Connection[Any, Any]] = {}
        self._reasons: dict[int, str] = {}  # of ranks that were killed here

    def start(self, setup: RankSetup) -> None:
        own, theirs = socket.socketpair()
        with own, theirs:
            environment = dict(os.environ)
            for variable in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS"):
                environment[variable] = str(self._threads)
            environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
            command = [sys.executable, "-m", "entrepot_frames.executors.process_main", str(theirs.fileno())]
            process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, env=environment)
            connection: Connection[Any, Any] = Connection(own.detach())
        connection.send(asdict(setup))
        self._processes[setup.rank] = process
        self._connections[setup.rank] = connection
        self._reasons.pop(setup.rank, None)

    def send(self, rank: int, task: Task) -> None:
        try:
            self._connections[rank].send(task)
        except (BrokenPipeError, ConnectionResetError):
            return  # wait() reads the end of the file

    def wait(self, timeout: float) -> list[tuple[int, Reply | Died]]:
        ranks = {connection: rank for rank, connection in self._connections.items()}
        events: list[tuple[int, Reply | Died]] = []
        for ready in wait(list(ranks), timeout):
            assert isinstance(ready, Connection)
            rank = ranks[ready]
            try:
                events.append((rank, ready.recv()))
            except (EOFError, OSError):
                events.append((rank, Died(self._bury(rank))))
        return events

    def kill(self, rank: int, reason: str) -> None:
        self._reasons[rank] = reason
        self._processes[rank].kill()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        for process in self._processes.values():
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._connections.clear()
        self._processes.clear()

    def _bury(self, rank: int) -> str:
        """Forget a rank whose connection has ended, and return why in words."""
        self._connections.pop(rank).close()
        process = self._processes.pop(rank)
        try:
            code = process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"its process {process.pid} closed its connection and went on"
        if rank in self._reasons:
            return self._reasons.pop(rank)
        if code < 0:
            name = signal.Signals(-code).name
            return f"its process {process.pid} was killed by {name}" + _memory_hint(-code)
        return f"its process {process.pid} ended with exit code {code}"


def _memory_hint(number: int) -> str:
    return " (by the kernel, if memory was short)" if number == signal.SIGKILL else ""
