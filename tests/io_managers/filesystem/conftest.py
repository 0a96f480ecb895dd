"""Fixtures: a store of this module, and file systems on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import entrepot
import pytest
from entrepot_io import connections

pytest.importorskip("fsspec")

from entrepot_io.filesystem.file_system import EntrepotFileSystem


@pytest.fixture
def new_fs(module_daemon: Any) -> Iterator[Callable[..., EntrepotFileSystem]]:
    """``new_fs(**options)``: a file system on the module's store."""

    def make(**options: Any) -> EntrepotFileSystem:
        return EntrepotFileSystem(**({"address": module_daemon.address, "skip_instance_cache": True} | options))

    yield make
    connections.close_all()


@pytest.fixture
def fs(new_fs: Callable[..., EntrepotFileSystem], request: pytest.FixtureRequest) -> EntrepotFileSystem:
    """A file system whose ``current`` is a session of this test only."""
    return new_fs(session=f"test/{request.node.name}"[:200])


@pytest.fixture
def store(fs: EntrepotFileSystem, module_daemon: Any, request: pytest.FixtureRequest) -> Iterator[entrepot.Store]:
    """The session of ``fs``."""
    with entrepot.connect(module_daemon.address, session=f"test/{request.node.name}"[:200]) as opened:
        yield opened


@pytest.fixture
def options(module_daemon: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Storage options for libraries that make the file system themselves; its ``current`` is that of ``fs``."""
    return {"address": module_daemon.address, "session": f"test/{request.node.name}"[:200]}
