"""Python processes with the hooks, which run programs one after the other."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wrapt")
pytest.importorskip("entrepot_pipes.pipe", reason="pipes are not part of this build")

HOST = Path(__file__).with_name("program_host.py")
WATCHDOG_SECONDS = 100.0


@dataclass
class Outcome:
    """What a program printed, and the end of its traceback if it failed."""

    printed: str
    failed: str


class Host:
    """One process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HOST)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def begin(self, code: str) -> None:
        """Run a program, without waiting for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"code": code}) + "\n")
        self._process.stdin.flush()

    def end(self) -> Outcome:
        """Wait for it."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the process ended with {self._process.wait(WATCHDOG_SECONDS)}"
        return Outcome(**json.loads(line))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(WATCHDOG_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def hooked(**more: str) -> dict[str, str]:
    """The environment of a process with the hooks."""
    from entrepot_pipes.hooks.environment import hooked_environment

    return hooked_environment({**os.environ, "ENTREPOT_PIPE_TIMEOUT": "60", **more})


@pytest.fixture(scope="module")
def hosts() -> Iterator[Callable[[str], Host]]:
    """Processes by name, started when they are first asked for."""
    import entrepot

    entrepot.connect().close()  # the store is there before several processes look for it
    started: dict[str, Host] = {}

    def host(name: str) -> Host:
        if name not in started:
            started[name] = Host(hooked())
        return started[name]

    yield host
    for process in started.values():
        process.close()


@pytest.fixture
def pipe_names() -> Callable[[], str]:
    """Names that nobody else uses."""
    numbers = itertools.count()
    return lambda: f"db://t{uuid.uuid4().hex[:12]}-{next(numbers)}"


@pytest.fixture(scope="module")
def transfer(hosts: Callable[[str], Host]) -> Callable[..., tuple[Outcome, Outcome]]:
    """Run two programs at the same time, which find the file's name in NAME."""

    def run(writer: str, reader: str, name: str, hosts_of: tuple[str, str] = ("writer", "reader")) -> Any:
        writer_host, reader_host = hosts(hosts_of[0]), hosts(hosts_of[1])
        writer_host.begin(f"NAME = {name!r}\n{writer}")
        reader_host.begin(f"NAME = {name!r}\n{reader}")
        return writer_host.end(), reader_host.end()

    return run
