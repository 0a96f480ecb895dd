"""Fixtures: stores to save from and load into, and targets (a directory, memory, and a real S3 server on loopback)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import entrepot
import pytest
from fsspec.implementations.memory import MemoryFileSystem

WATCHDOG_SECONDS = 60.0


@dataclass(frozen=True)
class Target:
    """Root URL for checkpoints, with its fsspec storage options."""

    url: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self, name: str) -> str:
        return f"{self.url}/{name}"


@pytest.fixture
def store(daemon: Any) -> Iterator[entrepot.Store]:
    """Store to save from, of 256 MiB."""
    with entrepot.connect(daemon.address, scope="tests") as connected:
        yield connected


@pytest.fixture
def other(daemon: Any) -> Iterator[entrepot.Store]:
    """Second store to load into, of another size."""
    folder = Path(tempfile.mkdtemp(prefix="eo-"))
    second = type(daemon)(folder, "128MiB")
    second.start()
    with entrepot.connect(second.address, scope="tests") as connected:
        yield connected
    second.stop()
    shutil.rmtree(folder, ignore_errors=True)


class S3Server:
    """An in-memory S3 server in a process of its own."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self._port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        self._log = Path(tempfile.mkstemp(prefix="s3-")[1])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + WATCHDOG_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                log_text = self._log.read_text()
                self.stop()
                pytest.fail(f"the S3 server does not listen: {log_text}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    @property
    def options(self) -> dict[str, Any]:
        """Storage options for s3fs."""
        return {"key": "key", "secret": "secret", "client_kwargs": {"endpoint_url": self.endpoint}}

    def stop(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait(WATCHDOG_SECONDS)
        self._log.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3 server shared by all tests of this process."""
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_server: S3Server) -> Target:
    """A new bucket for this test."""
    import s3fs

    bucket = f"bucket-{uuid.uuid4().hex}"
    s3fs.S3FileSystem(**s3_server.options).mkdir(bucket)
    return Target(f"s3://{bucket}/place", s3_server.options)


@pytest.fixture
def folder(tmp_path: Path) -> Target:
    """A local directory."""
    return Target(str(tmp_path / "root"))


@pytest.fixture
def memory() -> Iterator[Target]:
    """fsspec's in-memory file system."""
    root = f"/{uuid.uuid4().hex}"
    yield Target(f"memory:/{root}")
    if MemoryFileSystem().exists(root):
        MemoryFileSystem().rm(root, recursive=True)


@pytest.fixture(params=["folder", "memory", "s3"])
def target(request: pytest.FixtureRequest) -> Target:
    """Parametrized over the kinds of targets."""
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.fixture
def files() -> Callable[[str], dict[str, bytes]]:
    """``files(root)``: contents of all files below a local directory, by relative path."""

    def read(root: str) -> dict[str, bytes]:
        start = Path(root)
        return {str(path.relative_to(start)): path.read_bytes() for path in start.rglob("*") if path.is_file()}

    return read
