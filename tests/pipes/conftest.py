"""Fixtures: a store for each test, and programs at its pipes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import pytest

Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def store(daemon: Any, socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[entrepot.Store]:
    """Connection to a fresh store, which programs of this test find as well."""
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    monkeypatch.setenv("TMPDIR", str(socket_folder))  # what a killed `entrepot pipe run` leaves is removed with it
    with entrepot.connect() as connected:
        yield connected


@pytest.fixture
def spawn(store: entrepot.Store) -> Iterator[Spawn]:
    """``spawn(code, *arguments)``: start a Python program; it is killed at the end of the test, if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        started.append(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
