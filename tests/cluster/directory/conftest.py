"""Directories of all kinds: each server starts once for all tests of a process, each test has a cluster of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).with_name("servers")))

from directory_servers import Server, running
from entrepot_cluster.directory import Directory, Registration, open_directory

BACKENDS = ("embedded", "etcd", "redis")
_names = count()


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], Server]]:
    """``servers(kind)``: the server of a kind that all tests share; they must not stop it."""
    started: dict[str, Any] = {}

    def get(kind: str) -> Server:
        if kind not in started:
            context = running(kind)
            started[kind] = (context, context.__enter__())
        server: Server = started[kind][1]
        return server

    yield get
    for context, _ in started.values():
        context.__exit__(None, None, None)


@pytest.fixture(params=BACKENDS)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of directory."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def url(kind: str, servers: Callable[[str], Server], tmp_path: Path) -> str:
    """URL of an empty directory."""
    name = f"test{next(_names)}"
    return f"embedded://{tmp_path}/{name}" if kind == "embedded" else servers(kind).url(name)


@pytest.fixture
def open_it(url: str) -> Iterator[Callable[..., Directory]]:
    """``open_it(**options)``: open the test's directory; closed after the test."""
    opened: list[Directory] = []

    def open_one(**options: Any) -> Directory:
        opened.append(open_directory(url, **options))
        return opened[-1]

    yield open_one
    for directory in opened:
        directory.close()


@pytest.fixture
def directory(open_it: Callable[..., Directory]) -> Directory:
    """The test's directory."""
    return open_it()


@pytest.fixture
def private_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server for one test, of the kind that an indirect parameter names."""
    with running(request.param) as server:
        yield server


def instance_id(number: int) -> str:
    """ID of an instance."""
    return f"{number:032x}"


@pytest.fixture
def join() -> Callable[..., Registration]:
    """``join(directory, number, **options)``: register an instance of that number."""

    def register(directory: Directory, number: int, **options: Any) -> Registration:
        settings: dict[str, Any] = {"protocol": 1, "started_at": 1000.0 + number, "lease_seconds": 30.0} | options
        return directory.register(instance_id(number), f"host-{number}", [f"10.0.0.{number}:7000"], **settings)

    return register
