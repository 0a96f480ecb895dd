"""Programs of a Ray cluster, as tests see them."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

WATCHDOG_SECONDS = 100.0
_TOKEN = secrets.token_hex(32)  # without it, no other program joins the cluster


class RayDriver:
    """A process that is connected to a cluster, and runs functions.

    Attributes:
        process: it.
        address: of the cluster.
    """

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection[Any, Any]) -> None:
        self.process = process
        self._connection = connection
        self.address: str = self._answer()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function there, and return or raise what it does."""
        self._connection.send(cloudpickle.dumps((function, arguments)))
        return self._answer()

    def _answer(self) -> Any:
        assert self._connection.poll(WATCHDOG_SECONDS), "Ray's driver does not answer"
        succeeded, value = cloudpickle.loads(self._connection.recv())
        if not succeeded:
            raise value
        return value


@contextmanager
def ray_driver(where: str) -> Iterator[RayDriver]:
    """A driver of the cluster at an address, or of one that is started in a folder and ends with it."""
    own, theirs = socket.socketpair()
    with theirs:
        program = str(Path(__file__).with_name("ray_driver.py"))
        process = subprocess.Popen(
            [sys.executable, program, str(theirs.fileno()), where],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN},
        )
    connection: Connection[Any, Any] = Connection(own.detach())
    try:
        yield RayDriver(process, connection)
    finally:
        connection.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
