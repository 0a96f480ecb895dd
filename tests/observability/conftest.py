"""Fixtures of the page: ``entrepot ui`` in a process, and a client that has its token."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import entrepot
import httpx
import pytest


@dataclass(frozen=True, slots=True)
class PageServer:
    """A running ``entrepot ui``.

    Attributes:
        link: what it printed, with the token.
        url: without it.
        token: the secret.
        process: its process.
    """

    link: str
    url: str
    token: str
    process: subprocess.Popen[str]

    def client(self) -> httpx.Client:
        """A client without a token."""
        return httpx.Client(base_url=self.url, timeout=30)

    @contextmanager
    def logged_in(self) -> Iterator[httpx.Client]:
        """A client with the cookie, and the header for what changes something."""
        with self.client() as client:
            answer = client.post("/api/login", headers={"authorization": f"Bearer {self.token}"})
            assert answer.status_code == 200, answer.text
            client.headers["x-csrf-token"] = answer.json()["csrf"]
            yield client


@contextmanager
def serving_page(address: str, *options: str) -> Iterator[PageServer]:
    """``entrepot ui`` in a process, on any free port, asking the store ten times a second.

    Unless an option says otherwise, it finds no event logs.
    """
    no_events = tempfile.TemporaryDirectory()
    command = [sys.executable, "-m", "entrepot", "ui", "--address", address, "--listen", "127.0.0.1:0"]
    command += ["--interval", "0.1", "--events", no_events.name, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"(http://127\.0\.0\.1:\d+)/#token=(\S+)", process.stdout.readline())
        assert match is not None
        yield PageServer(match[0], match[1], match[2], process)
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
        no_events.cleanup()


@pytest.fixture(scope="module")
def page_server(module_daemon: Any) -> Iterator[PageServer]:
    """The page of the module's store."""
    with serving_page(module_daemon.address) as server:
        yield server


@pytest.fixture
def new_page() -> Callable[..., Any]:
    """``with new_page(address, *options) as server``: the page of another store."""
    return serving_page


@pytest.fixture
def store(module_daemon: Any) -> Iterator[entrepot.Store]:
    """Connection to the module's store."""
    with entrepot.connect(module_daemon.address) as connected:
        yield connected


@pytest.fixture
def session(store: entrepot.Store) -> Iterator[entrepot.Store]:
    """A session for one test, so that tests do not see each other's objects."""
    name = f"run-{entrepot.ObjectID.random().hex()[:12]}"
    with store.session(name) as opened:
        yield opened
    store.remove_session(name)


@pytest.fixture
def browser(page_server: PageServer) -> Iterator[httpx.Client]:
    """A client of the page that is logged in."""
    with page_server.logged_in() as client:
        yield client
