"""Fixtures: a separate store for each test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot._daemon import launcher, settings


@pytest.fixture
def store(daemon: Any) -> Iterator[entrepot.Store]:
    """Connection to a fresh store of 256 MiB."""
    with entrepot.connect(daemon.address, scope="tests") as connected:
        yield connected


@pytest.fixture
def _ended(store: entrepot.Store, wait_until: Callable[..., None]) -> Iterator[None]:
    """Stop a store whose keeper is no longer the process that the test started."""
    yield
    path = store.address.removeprefix("unix://")
    os.kill(store.status()["keeper_pid"], signal.SIGTERM)
    wait_until(lambda: not os.path.exists(path), "the store to end")


@pytest.fixture
def private(socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Separate runtime directory; its private store is stopped at the end."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        folder = socket_folder / name[4:7].lower()
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("ENTREPOT_PRIVATE_SIZE", "64MiB")
    address = settings.private_address()
    yield socket_folder
    for pid in launcher.listening_pids(address):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        assert launcher.stop(pid)


@pytest.fixture
def python(daemon: Any) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``python(code, *arguments)``: run code in another process, connected as ``store``."""

    def run(code: str, *arguments: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program(daemon.address, code), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def spawn(daemon: Any) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``spawn(code, *arguments)``: start code in another process with pipes; it ends with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program(daemon.address, code), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate(timeout=30)


def program(address: str, code: str) -> str:
    """Prefix the code with a statement that connects ``store``."""
    start = f"""
        import os, sys
        import entrepot
        store = entrepot.connect({address!r}, scope="tests")
    """
    return textwrap.dedent(start) + textwrap.dedent(code)
