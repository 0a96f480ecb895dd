"""Front ends for Plasma clients, and Plasma's own client in an environment of its own."""

from __future__ import annotations

import ast
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from entrepot._daemon.launcher import is_listening
from entrepot._daemon.plasma_front_end import front_end_binary

ROOT = Path(__file__).resolve().parents[2]
STOCK_PYTHON = ROOT / ".venv-plasma-client/bin/python"
WATCHDOG_SECONDS = 60.0


class FrontEnd:
    """An ``entrepot-plasma-store`` of the test.

    Attributes:
        socket: where Plasma clients connect.
        process: the running process.
    """

    def __init__(self, folder: Path, address: str, nbytes: int, wait_until: Callable[..., None], *options: str) -> None:
        self.socket = folder / "plasma.sock"
        self._log = folder / "front-end.log"
        self._wait_until = wait_until
        self._command = [str(front_end_binary()), "-s", str(self.socket), "-m", str(nbytes)]
        self._command += ["--address", address, *options]
        self.start()

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait_until(
            lambda: is_listening(f"unix://{self.socket}") or self.process.poll() is not None, "the front end to listen"
        )
        assert self.process.poll() is None, self.log()

    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.wait(WATCHDOG_SECONDS)

    def stop(self) -> int:
        """End it by SIGTERM; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WATCHDOG_SECONDS)


@pytest.fixture
def new_front_end(
    request: pytest.FixtureRequest, socket_folder: Path, wait_until: Callable[..., None]
) -> Iterator[Callable[..., FrontEnd]]:
    """``new_front_end(nbytes, *options)``: start this test's only front end, of the store ``store``, or ``daemon``."""
    started: list[FrontEnd] = []

    def start(nbytes: int, *options: str, store: Any = None) -> FrontEnd:
        address = (store or request.getfixturevalue("daemon")).address
        started.append(FrontEnd(socket_folder, address, nbytes, wait_until, *options))
        return started[-1]

    yield start
    for front_end in started:
        if front_end.process.poll() is None:
            front_end.stop()


class PlasmaFailed(Exception):
    """A line that Plasma's client ran raised this."""


class StockClient:
    """A process with Plasma's own client, which runs the lines it is given in one namespace, ``client`` included."""

    def __init__(self, python: Path, socket: Path) -> None:
        program = Path(__file__).with_name("stock_client.py")
        self.process = subprocess.Popen(
            [str(python), "-u", "-W", "ignore", str(program), str(socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, code: str) -> None:
        """Have it run a line, without waiting for that."""
        assert self.process.stdin is not None
        self.process.stdin.write(repr(code) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        """The result of the earliest line whose result was not received yet; an error there is one here."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "Plasma's client has ended"
        is_value, result = ast.literal_eval(line)
        if not is_value:
            raise PlasmaFailed(result)
        return result

    def run(self, code: str) -> Any:
        """Have it run a line and return the result."""
        self.send(code)
        return self.receive()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.wait(WATCHDOG_SECONDS)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def stock_python() -> Path:
    """The interpreter that has Plasma's own client; the test is skipped where there is none."""
    if not STOCK_PYTHON.exists():
        pytest.skip("Plasma's client is not there (make .venv-plasma-client/.synced), or has no wheel for this Python")
    return STOCK_PYTHON


@pytest.fixture
def stock_client(stock_python: Path) -> Iterator[Callable[[FrontEnd], StockClient]]:
    """``stock_client(front_end)``: a new process with Plasma's own client, connected."""
    started: list[StockClient] = []

    def start(front_end: FrontEnd) -> StockClient:
        started.append(StockClient(stock_python, front_end.socket))
        return started[-1]

    yield start
    for client in started:
        if client.process.poll() is None:
            client.kill()
