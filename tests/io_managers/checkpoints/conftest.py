"""Fixtures: stores to save from and load into, and targets (a directory, memory, and a real S3 server on loopback)."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import entrepot
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from s3_in_memory import S3Server


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
