"""Hosts of a cluster on this machine: each a store, a gateway, and two relays through which it talks to the others.

other gateways ──▶ its relay ──▶ its gateway ──▶ its relay to the directory ──▶ the directory's server
                                     └──▶ its store
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import entrepot
from directory_servers import KINDS, Server, free_port
from entrepot.errors import EntrepotError
from store_processes import store_processes
from tcp_relay import TcpRelay

PATIENCE_SECONDS = 60.0
LEASE_SECONDS = 3.0
LEAVE_SECONDS = 90.0  # a daemon that stands still is waited for, twice, for half a minute
STORE_BYTES = "1GiB"
# Writes the stacks of all its threads into its log on SIGUSR2, to find out what one that does not end is waiting for.
_TRACED_GATEWAY = """
import faulthandler, signal, sys
from entrepot.cli import main
faulthandler.register(signal.SIGUSR2)
sys.exit(main())
"""


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition, with a watchdog."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"gave up waiting for {what} after {seconds:g} s")
        time.sleep(0.02)


class DirectoryServer:
    """The directory's server.

    Args:
        kind: ``etcd`` or ``redis``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._server: Server = KINDS[kind]()
        self._server.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def pause(self) -> None:
        """Stop it: it answers nothing."""
        self._server.stop()

    def resume(self) -> None:
        """End :meth:`pause`."""
        self._server.go_on()

    def kill(self) -> None:
        """Kill it. Redis loses everything, etcd nothing."""
        self._server.kill()

    def start(self) -> None:
        """Start it again."""
        self._server.start()

    def empty(self) -> None:
        """Remove what it has; it must have been killed."""
        self._server.empty()

    def end(self) -> None:
        """End it, and remove its files."""
        self._server.end()


class ClusterHost:
    """A host.

    Args:
        name: of the host.
        folder: for its socket and logs.
        directory: the server.

    Attributes:
        name: of the host.
        address: of its store.
        instance: of the store that runs, or ran last.
        links: what other gateways send to it and get from it passes here.
        directory_links: the same for the directory.
    """

    def __init__(self, name: str, folder: Path, directory: DirectoryServer) -> None:
        self.name = name
        self.instance = ""
        folder.mkdir()
        self.address = f"unix://{folder}/store.sock"
        self._folder = folder
        self._port = free_port()
        self.links = TcpRelay(f"127.0.0.1:{self._port}")
        self.directory_links = TcpRelay(f"127.0.0.1:{directory.port}")
        self._url = f"{directory.kind}://{self.directory_links.address}/faults"
        self._keeper: subprocess.Popen[bytes] | None = None
        self._gateway: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start store and gateway."""
        self.start_store()
        self.start_gateway()

    def start_store(self) -> None:
        """Start the store."""
        command = [sys.executable, "-m", "entrepot.daemon_main", "--address", self.address]
        command += ["--size", STORE_BYTES, "--spill-path", "none"]
        self._keeper = self._spawn(command, "store")
        keeper = self._keeper

        def connects() -> bool:
            if keeper.poll() is not None:
                raise AssertionError(f"the store of {self.name} does not start:\n{self.log('store')}")
            try:
                with entrepot.connect(self.address) as store:
                    self.instance = store.instance_id
            except EntrepotError:
                return False
            return True

        wait_until(connects, f"the store of {self.name}")

    def start_gateway(self) -> None:
        """Start the gateway, without waiting for it."""
        command = [sys.executable, "-c", _TRACED_GATEWAY, "gateway", "--address", self.address, "--cluster", self._url]
        command += ["--listen", f"127.0.0.1:{self._port}", "--advertise", self.links.address]
        command += ["--host", self.name, "--lease-seconds", str(LEASE_SECONDS)]
        self._gateway = self._spawn(command, "gateway")

    def keep_gateway(self) -> None:
        """Start the gateway if it has ended by itself, as its supervisor does."""
        if self._gateway is not None and self._gateway.poll() is not None:
            self.start_gateway()

    def _spawn(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{log}.log").open("ab") as out:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def log(self, name: str) -> str:
        """The end of a log: ``store`` or ``gateway``."""
        return (self._folder / f"{name}.log").read_text(errors="replace")[-20_000:]

    # --- faults

    def kill_gateway(self) -> None:
        """Kill the gateway."""
        if self._gateway is not None:
            self._gateway.kill()
            self._gateway.wait(PATIENCE_SECONDS)
            self._gateway = None

    def leave(self) -> None:
        """Have the gateway end in an orderly way, without waiting for it."""
        if self._gateway is not None:
            self._gateway.terminate()

    def wait_until_left(self) -> None:
        """Wait until the gateway has ended; raises AssertionError with the stacks of its threads."""
        try:
            wait_until(self.has_left, f"the gateway of {self.name} to end", LEAVE_SECONDS)
        except AssertionError as error:
            before = len(self.log("gateway"))
            self.signal_gateway(signal.SIGUSR2)
            wait_until(lambda: len(self.log("gateway")) != before, "the stacks of its threads", 10)
            raise AssertionError(f"{error}:\n{self.log('gateway')}") from None

    def has_left(self) -> bool:
        """Whether the gateway has ended."""
        return self._gateway is None or self._gateway.poll() is not None

    def signal_gateway(self, number: int) -> None:
        """Send the gateway a signal, if it runs."""
        if self._gateway is not None and self._gateway.poll() is None:
            self._gateway.send_signal(number)

    def signal_store(self, role: str, number: int) -> None:
        """Send ``daemon`` or ``keeper`` a signal, if there is one."""
        for process in store_processes(self.address):
            if process.role == role:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def kill_store(self) -> None:
        """Kill keeper and daemon at once: what the store has is lost."""
        self.signal_store("keeper", signal.SIGSTOP)  # so that it does not start another daemon
        self.signal_store("daemon", signal.SIGKILL)
        self.signal_store("keeper", signal.SIGKILL)
        if self._keeper is not None:
            self._keeper.wait(PATIENCE_SECONDS)
            self._keeper = None
        wait_until(lambda: not store_processes(self.address), f"the end of the store of {self.name}")

    def stop_store(self) -> None:
        """End the store in an orderly way."""
        if self._keeper is not None:
            self._keeper.terminate()
            self._keeper.wait(PATIENCE_SECONDS)
            self._keeper = None
        wait_until(lambda: not store_processes(self.address), f"the end of the store of {self.name}")

    def end(self) -> None:
        """End everything."""
        self.signal_gateway(signal.SIGCONT)
        self.kill_gateway()
        for role in ("keeper", "daemon"):
            self.signal_store(role, signal.SIGCONT)
        self.kill_store()
        for relay in (self.links, self.directory_links):
            relay.__exit__(None, None, None)
