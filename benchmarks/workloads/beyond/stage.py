"""A spilling daemon, and client processes for it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.harness.machine import ROOT
from benchmarks.harness.stage import SystemsUnderTest
from benchmarks.systems import System
from benchmarks.systems.base import ProcessServer, RunEnvironment, accepts, make_folder, remove_folder

CALL_SECONDS = 600.0


class ClientFailed(Exception):
    """A client process failed; the message includes the end of its output."""


class ClientProcess:
    """An operation of ``benchmarks.workloads.beyond.client`` in a process of its own.

    Args:
        python: the interpreter.
        variables: its environment.
        operation, arguments: see there.
    """

    def __init__(self, python: str, variables: dict[str, str], operation: str, **arguments: Any) -> None:
        self._what = operation
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.workloads.beyond.client", operation, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=variables | {"PYTHONPATH": str(ROOT)},
            cwd=tempfile.gettempdir(),
        )

    def wait_ready(self) -> None:
        """Wait until it reports that it is ready."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            self.result()

    def start(self) -> None:
        """Let it start."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Wait for it to end.

        Raises:
            ClientFailed: it failed or took too long.
        """
        try:
            out, _ = self._process.communicate(timeout=CALL_SECONDS)
        except subprocess.TimeoutExpired:
            raise ClientFailed(f"{self._what}: no answer within {CALL_SECONDS:.0f} s") from None
        finally:
            self.kill()
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace").strip()
        self._errors.close()
        if self._process.returncode != 0:
            raise ClientFailed(f"{self._what}: {errors[-1000:]}")
        result: dict[str, Any] = json.loads(out)
        return result

    def kill(self) -> None:
        """Kill it if it is still running."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class _SpillingServer(ProcessServer):
    def start(self, run_environment: RunEnvironment, spill: Path | None, quota: int, *more: str) -> str:
        """Start entrepotd in the foreground; memory not yet warm by then is warmed while it is in use."""
        address = f"unix://{run_environment.socket}"
        command = [
            run_environment.python,
            "-m",
            "entrepot.daemon_main",
            "--address",
            address,
            "--size",
            str(run_environment.capacity),
        ]
        command += ["--spill-path", "none"] if spill is None else ["--spill-path", str(spill)]
        command += [] if spill is None else ["--spill-quota", str(quota), "--spill-reserve", "0"]
        self.launch(run_environment, [*command, *more], lambda: accepts(run_environment.socket))
        return address


@dataclass
class SpillingDaemon:
    """A running daemon.

    Attributes:
        address: for clients.
        server: its processes.
        disk: a directory on the disk that it spills to.
    """

    under_test: SystemsUnderTest
    address: str
    server: ProcessServer
    disk: Path
    calls: list[ClientProcess] = field(default_factory=list[ClientProcess])

    def begin(self, operation: str, **arguments: Any) -> ClientProcess:
        """Start an Entrepot client process, which does not outlive the daemon."""
        self.calls.append(
            ClientProcess(self.under_test.package.python, self.under_test.package.variables, operation, **arguments)
        )
        return self.calls[-1]

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Like :meth:`begin`, but wait for the result."""
        return self.begin(operation, address=self.address, **arguments).result()


@contextmanager
def on_disk() -> Iterator[Path]:
    """A temporary directory for spill files, in the store's default location."""
    folder = Path(tempfile.mkdtemp(prefix="eb-disk-", dir="/var/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spilling(under_test: SystemsUnderTest, capacity: int, *more: str, spills: bool = True) -> Iterator[SpillingDaemon]:
    """Context with a daemon that has its own directory on disk, removed afterwards."""
    with on_disk() as disk:
        folder = make_folder("beyond")
        run_environment = RunEnvironment(folder, capacity, under_test.package.python, under_test.package.variables)
        server = _SpillingServer()
        calls: list[ClientProcess] = []
        try:
            address = server.start(run_environment, disk / "spill" if spills else None, 8 * capacity, *more)
            yield SpillingDaemon(under_test, address, server, disk, calls)
        finally:
            for call in calls:
                call.kill()
            server.stop()
            remove_folder(folder)


@contextmanager
def peer(under_test: SystemsUnderTest, system: System, capacity: int) -> Iterator[str]:
    """Context with another system's server; yields its address."""
    folder = make_folder(system.name.replace(" ", ""))
    server = system.server()
    try:
        yield server.start(
            RunEnvironment(folder, capacity, under_test.pythons[system.name], under_test.package.variables)
        )
    finally:
        server.stop()
        remove_folder(folder)


def wait_for(condition: Any, what: str, seconds: float = 30.0) -> Any:
    """Poll a condition; returns its first true value.

    Raises:
        ClientFailed: it did not become true in time.
    """
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise ClientFailed(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.001)
