"""Hosts of a cluster: each a store and its gateway, all on this machine, with a directory in a file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import entrepot
import pytest
from entrepot_cluster.directory.opening import open_directory
from suspension import suspend

LEASE_SECONDS = 2.0
PATIENCE_SECONDS = 60.0


class Host:
    """A store and its gateway.

    Attributes:
        name: of the host.
        address: of its store.
        store: a connection to it.
    """

    def __init__(
        self, name: str, daemon: Any, directory: str, folder: Path, options: tuple[str, ...], network: Any
    ) -> None:
        self.name = name
        self.daemon = daemon
        self.address: str = daemon.address
        self.store = entrepot.connect(daemon.address)
        self._log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", "entrepot", "gateway", "--address", self.address]
        self._command += ["--cluster", directory, "--host", name, "--lease-seconds", str(LEASE_SECONDS), *options]
        self._network = network
        self._gateway: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What the gateway has logged."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def gateway_pid(self) -> int:
        """The process of the gateway."""
        assert self._gateway is not None
        return self._gateway.pid

    def start_gateway(self, *options: str, wait: bool = True) -> None:
        """Start the gateway, and wait until it is registered and serves the store."""
        offset = len(self.log)
        with self._log.open("ab") as log:
            command = [*self._command, *options]
            if self._network is not None:
                command = self._network.command(
                    command
                )  # replaces itself by the command, so its process is the gateway
            self._gateway = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if not wait:
            return
        end = time.monotonic() + PATIENCE_SECONDS
        while "is registered" not in self.log[offset:]:
            if self._gateway.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the gateway of {self.name} does not come up:\n{self.log}")
            time.sleep(0.01)

    def wait_gateway(self) -> int:
        """Wait until the gateway has ended by itself; return its exit code."""
        assert self._gateway is not None
        return self._gateway.wait(PATIENCE_SECONDS)

    def signal_gateway(self, number: int) -> None:
        """Send the gateway a signal."""
        assert self._gateway is not None
        if number == signal.SIGSTOP:
            suspend(self._gateway.pid)
        else:
            self._gateway.send_signal(number)

    def kill_gateway(self) -> None:
        """Kill the gateway."""
        self.signal_gateway(signal.SIGKILL)
        self.wait_gateway()

    def kill(self) -> None:
        """Kill the store and its gateway, as if the host had died."""
        self.kill_gateway()
        self.daemon.kill(self.store)

    def stop(self) -> None:
        """End both."""
        if self._gateway is not None:
            if self._gateway.poll() is None:
                os.kill(self._gateway.pid, signal.SIGCONT)
                self._gateway.terminate()
            try:
                self._gateway.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self._gateway.kill()
                self._gateway.wait()
                pytest.fail(f"the gateway of {self.name} did not end on SIGTERM:\n{self.log}")
        self.store.close()
        self.daemon.stop()


class Cluster:
    """Hosts that share a directory; started by name as needed.

    Attributes:
        url: of the directory.
    """

    def __init__(self, folder: Path, new_daemon: Callable[..., Any]) -> None:
        self._folder = folder
        self._new_daemon = new_daemon
        self.url = f"embedded://{folder}/test"
        self._hosts: list[Host] = []

    def host(self, name: str, *options: str, size: str = "128MiB", gateway: bool = True, network: Any = None) -> Host:
        """Start a host; options are its gateway's, ``network`` is the isolated host that its gateway is on."""
        folder = self._folder / name
        folder.mkdir()
        host = Host(name, self._new_daemon(folder, size), self.url, self._folder, options, network)
        self._hosts.append(host)
        if gateway:
            host.start_gateway()
        return host

    def instances(self) -> dict[str, bool]:
        """Whether each host that the directory knows is live."""
        with open_directory(self.url) as directory:
            return {instance.host: instance.live for instance in directory.instances()}

    def stop(self) -> None:
        """End all hosts."""
        for host in self._hosts:
            host.stop()


@pytest.fixture
def cluster(daemon_in: Callable[..., Any]) -> Iterator[Cluster]:
    """A cluster without hosts."""
    folder = Path(tempfile.mkdtemp(prefix="ec-"))
    running = Cluster(folder, daemon_in)
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def two_hosts(cluster: Cluster) -> tuple[Host, Host]:
    """Two hosts, ``a`` and ``b``."""
    return cluster.host("a"), cluster.host("b")


@pytest.fixture(scope="module")
def lasting_hosts(daemon_in: Callable[..., Any]) -> Iterator[tuple[Host, Host]]:
    """Two hosts, ``a`` and ``b``, for all tests of a module; their stores and gateways must not be killed."""
    folder = Path(tempfile.mkdtemp(prefix="ec-"))
    running = Cluster(folder, daemon_in)
    yield running.host("a", size="256MiB"), running.host("b", size="256MiB")
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def run_on() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``run_on(host, code, *arguments)``: start code with ``store``, connected to a host's; it ends with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(host: Host, code: str, *arguments: object) -> subprocess.Popen[str]:
        program = f"import os, sys\nimport entrepot\nstore = entrepot.connect({host.address!r})\n" + dedent(code)
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        with process:  # closes its pipes, and waits for it
            pass


@pytest.fixture(scope="module")
def shared_hosts(daemon_in: Callable[..., Any]) -> Iterator[tuple[Host, Host, Host]]:
    """Three hosts for all tests of a module, which use names of their own and leave them running.

    None of them is ever lost, so their leases are long enough for a busy machine.
    """
    folder = Path(tempfile.mkdtemp(prefix="ec-"))
    running = Cluster(folder, daemon_in)
    lease = ("--lease-seconds", "60")
    yield running.host("a", *lease), running.host("b", *lease), running.host("c", *lease)
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)
