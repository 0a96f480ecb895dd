"""Servers for the directory's tests: etcd and Redis on loopback, with folders of their own, ended by process ID."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 30.0
END_SECONDS = 20.0


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class NoServer(RuntimeError):
    """A server cannot be started; the message says why."""


class Server:
    """A process that serves on a port; :meth:`command` and :meth:`ready` are the kind's own."""

    scheme = ""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dir-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process ID; it must be running."""
        assert self._process is not None
        return self._process.pid

    def command(self) -> Sequence[str]:
        """The command line."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    def url(self, name: str) -> str:
        """URL of a cluster's directory on it."""
        return f"{self.scheme}://127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start it, and wait until it answers; raises NoServer."""
        program = shutil.which(self.command()[0])
        if program is None:
            raise NoServer(f"{self.command()[0]} is not on this machine; `make setup` says which package has it")
        log = self.folder / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [program, *self.command()[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder
            )
        end = time.monotonic() + START_SECONDS
        while not (accepts(self.port) and self.ready()):
            if self._process.poll() is not None or time.monotonic() > end:
                raise NoServer(f"{program} does not come up:\n{log.read_text(errors='replace')[-5000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it like SIGSTOP does: connections are accepted, and nothing is answered."""
        from suspension import suspend  # here, as examples/cluster uses this module without the others of the tests

        suspend(self.pid)

    def go_on(self) -> None:
        """End :meth:`stop`."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it; what it has not written to its folder is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_SECONDS)
            self._process = None

    def empty(self) -> None:
        """Remove its data; it must not be running."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "log":
                path.unlink()

    def end(self) -> None:
        """Kill it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: int) -> None:
        os.kill(self.pid, number)


class EtcdServer(Server):
    """One etcd, without TLS or users.

    Args:
        quick: with elections as short as etcd allows, so that leases may last two seconds, and a restart takes little.
    """

    scheme = "etcd"

    def __init__(self, *, quick: bool = True) -> None:
        super().__init__()
        self._peer_port = free_port()
        self._quick = quick

    def command(self) -> Sequence[str]:
        """See the base class."""
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            "etcd",
            "--data-dir=data",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=error",
            *(["--heartbeat-interval=50", "--election-timeout=500"] if self._quick else []),
        ]

    def ready(self) -> bool:
        """Whether it has a leader: whether it answers a read."""
        import urllib3

        try:
            url = f"http://127.0.0.1:{self.port}/v3/kv/range"
            response = urllib3.request("POST", url, body=b'{"key": "YQ=="}', timeout=2.0, retries=False)
        except urllib3.exceptions.HTTPError:
            return False
        return response.status in (200, 400)  # 400: only users may read


class RedisServer(Server):
    """One Redis that writes nothing to disk."""

    scheme = "redis"

    def command(self) -> Sequence[str]:
        """See the base class."""
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        return ["redis-server", *options, "--dir", str(self.folder), "--loglevel", "warning"]

    def ready(self) -> bool:
        """Whether it answers a PING."""
        with socket.create_connection(("127.0.0.1", self.port), 2.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(100) == b"+PONG\r\n"


KINDS: dict[str, type[Server]] = {"etcd": EtcdServer, "redis": RedisServer}


@contextmanager
def running(kind: str, *, test: bool = True) -> Iterator[Server]:
    """A server of a kind until the end of the block; ``test=False``: with its default settings."""
    server = KINDS[kind]() if test or kind != "etcd" else EtcdServer(quick=False)
    try:
        server.start()
        yield server
    finally:
        server.end()


# A process that holds SQLite's write lock until its standard input ends.
HOLD_LOCK = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
    "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the lock of a SQLite file until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
    finally:
        process.communicate(b"", END_SECONDS)
