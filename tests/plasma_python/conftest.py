"""Fixtures: clients of a store of this test's own, and code in other processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import entrepot
import pytest
from entrepot import plasma


@pytest.fixture
def socket_name(daemon: Any) -> str:
    """Path of the socket of this test's store."""
    return str(daemon.address).removeprefix("unix://")


@pytest.fixture
def client(socket_name: str) -> Iterator[plasma.PlasmaClient]:
    """A client of this test's store, of 256 MiB."""
    connected = plasma.connect(socket_name)
    yield connected
    connected.disconnect()


@pytest.fixture
def store(daemon: Any) -> Iterator[entrepot.Store]:
    """The same store through Entrepot's own interface."""
    with entrepot.connect(daemon.address) as connected:
        yield connected


@pytest.fixture
def start(socket_name: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``start(code, *ids)``: run code with a ``client`` of its own in another process, which ends with the test."""
    running: list[subprocess.Popen[str]] = []
    head = f"""
        import sys
        import entrepot.plasma as plasma
        client = plasma.connect({socket_name!r})
        ids = [plasma.ObjectID(bytes.fromhex(each)) for each in sys.argv[1:]]
    """

    def run(code: str, *ids: plasma.ObjectID) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)]
        command += [each.binary().hex() for each in ids]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate(timeout=30)


@pytest.fixture
def output(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """``output(code, *ids)``: what code prints that runs in another process to its end."""

    def run(code: str, *ids: plasma.ObjectID) -> str:
        process = start(code, *ids)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return printed

    return run
