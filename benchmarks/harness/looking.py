"""What looks at a store while something is measured: the page, metrics, ``entrepot top``."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

START_SECONDS = 60.0


@dataclass(frozen=True)
class RunningPage:
    """A running ``entrepot ui``.

    Attributes:
        link: what it printed.
        url: without the token.
        token: the secret.
        pid: of its process.
    """

    link: str
    url: str
    token: str
    pid: int

    def refresh(self) -> int:
        """Ask what a page asks at each tick; return the number of objects that are listed."""
        objects = 0
        for path in ("/api/overview?by=session", "/api/objects?limit=100"):
            request = urllib.request.Request(self.url + path, headers={"authorization": f"Bearer {self.token}"})
            with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
                objects = int(json.load(answer).get("matched", 0))
        return objects


@contextmanager
def refreshed_page(address: str) -> Iterator[RunningPage]:
    """``entrepot ui``, with a page open that refreshes at each tick, as the browser's does."""
    with _started(["ui", "--address", address, "--listen", "127.0.0.1:0"]) as process:
        link = re.search(r"(http://127\.0\.0\.1:\d+)/#token=(\S+)", _line(process))
        assert link is not None
        page = RunningPage(link[0], link[1], link[2], process.pid)
        ready = threading.Event()

        def refresh() -> None:
            if page.refresh():
                ready.set()

        with repeated(refresh, 1.0):
            if not ready.wait(START_SECONDS):
                raise RuntimeError("the page's server has listed no objects")
            yield page


@contextmanager
def scraped_metrics(address: str) -> Iterator[None]:
    """``entrepot metrics``, scraped every second."""
    with _started(["metrics", "--address", address, "--listen", "127.0.0.1:0"]) as process:
        link = re.search(r"http://\S+", _line(process))
        assert link is not None

        def scrape() -> None:
            with urllib.request.urlopen(link[0], timeout=START_SECONDS) as answer:
                answer.read()

        with repeated(scrape, 1.0):
            yield


@contextmanager
def drawn_top(address: str) -> Iterator[subprocess.Popen[bytes]]:
    """``entrepot top`` in a pseudo-terminal, that is read."""
    master, slave = pty.openpty()
    ended = threading.Event()
    drawn = threading.Event()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    command = [sys.executable, "-m", "entrepot", "top", "--address", address]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, close_fds=True)
    os.close(slave)

    def read() -> None:
        while not ended.is_set():
            try:
                if b"bytes" in os.read(master, 65536).lower():
                    drawn.set()
            except OSError:  # it has ended
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        if not drawn.wait(START_SECONDS):
            raise RuntimeError("entrepot top has drawn no table")
        yield process
    finally:
        ended.set()
        process.terminate()
        process.wait(30)
        reader.join(30)
        os.close(master)


@contextmanager
def _started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-m", "entrepot", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@contextmanager
def repeated(function: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call the function in a thread, so long after it has returned, until the block ends; its error is raised then."""
    errors: list[BaseException] = []
    ended = threading.Event()

    def repeat() -> None:
        try:
            while not ended.is_set():
                function()
                ended.wait(seconds)
        except BaseException as error:  # raised below
            errors.append(error)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(START_SECONDS)
    if errors:
        raise errors[0]
