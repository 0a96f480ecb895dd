"""What all tests share: an environment that is nobody's, sockets with short paths, waiting with a watchdog."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Longer than any test's own need, short of pytest's timeout.
WATCHDOG_SECONDS = 30.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The soak test is never part of the fast tier."""
    for item in items:
        if "soak" in item.path.parts:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _nobodys_environment() -> Iterator[None]:
    """Hides the settings, run-time folder and configuration of whoever runs the tests.

    A private daemon that a test starts by accident then lives in a folder of this run, and no test ever meets the
    store of the user.
    """
    folder = Path(tempfile.mkdtemp(prefix="ent-"))
    kept = dict(os.environ)
    for name in list(os.environ):
        if name.startswith("ENTREPOT_") and not name.startswith("ENTREPOT_SOAK_"):
            del os.environ[name]
    for name in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        place = folder / name.removeprefix("XDG_").lower()
        place.mkdir(mode=0o700)
        os.environ[name] = str(place)
    yield
    os.environ.clear()
    os.environ.update(kept)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder of this test alone, its path short enough for the kernel's limit of 107 bytes on socket names."""
    folder = Path(tempfile.mkdtemp(prefix="es-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """``wait_until(condition, what, seconds=30)``: waits till the condition holds; fails saying what was waited for."""

    def wait(condition: Callable[[], object], what: str, seconds: float = WATCHDOG_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                pytest.fail(f"waited {seconds:g} s in vain for {what}")
            time.sleep(0.005)

    return wait


class Daemon:
    """An ``entrepotd`` in the foreground that belongs to one test.

    Attributes:
        address: where it listens.
    """

    def __init__(self, folder: Path, size: str = "256MiB") -> None:
        self.address = f"unix://{folder}/store.sock"
        self._log = folder / "entrepotd.log"
        self._command = [sys.executable, "-m", "entrepot.daemon_main", "--address", self.address, "--size", size]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + WATCHDOG_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the daemon does not listen:\n{self._log.read_text()}")
            time.sleep(0.005)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self.address.removeprefix("unix://"))
            except OSError:
                return False
            return True

    def stop(self) -> None:
        """End it and wait for its end; what it stored is gone. Nothing if it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(WATCHDOG_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            pytest.fail(f"the daemon did not end on SIGTERM:\n{self._log.read_text()}")
        self._process = None


@pytest.fixture
def daemon(socket_folder: Path) -> Iterator[Daemon]:
    """A store of this test's own, running."""
    running = Daemon(socket_folder)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def module_daemon() -> Iterator[Daemon]:
    """A store that the tests of one module share, because what they look at is expensive to make."""
    folder = Path(tempfile.mkdtemp(prefix="em-"))
    running = Daemon(folder)
    running.start()
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)
