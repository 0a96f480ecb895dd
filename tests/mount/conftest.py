"""Fixtures: a store, and real mounts of it, which end with the test whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.errors import EntrepotError
from entrepot_io import connections
from entrepot_mount.mounting import check_possible

WATCHDOG_SECONDS = 60.0
SESSION = "mounted"


class Mount:
    """A mount, served by a process of its own.

    Attributes:
        folder: where it is.
        pid: of its process.
        log_file: its log.
    """

    def __init__(self, folder: Path, log_file: Path) -> None:
        self.folder = folder
        self.log_file = log_file
        self.pid = 0

    def start(self, address: str, *options: str) -> None:
        """Mount; skips the test where the kernel refuses it."""
        if not self.pid:
            self.folder.mkdir()
        command = [sys.executable, "-m", "entrepot", "mount", "--address", address, "--log", str(self.log_file)]
        done = subprocess.run(
            [*command, *options, str(self.folder)], capture_output=True, text=True, timeout=WATCHDOG_SECONDS
        )
        if done.returncode != 0 and "the kernel refused to mount" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        self.pid = int(done.stdout.partition("by process ")[2].partition(";")[0])

    def log(self) -> str:
        """What it has logged so far."""
        return self.log_file.read_text()

    def is_running(self) -> bool:
        """Whether its process lives. Nobody waits for it here, so it may remain as a zombie."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        return False

    def kill(self) -> None:
        """Kill its process, and wait for its end."""
        if self.pid and self.is_running():
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def wait(self) -> None:
        """Wait until its process has ended."""
        end = time.monotonic() + WATCHDOG_SECONDS
        while self.is_running():
            if time.monotonic() > end:
                pytest.fail(f"the mount's process {self.pid} does not end:\n{self.log()}")
            time.sleep(0.005)

    def end(self) -> None:
        """Unmount lazily, and end its process."""
        subprocess.run(["umount", "--lazy", str(self.folder)], capture_output=True, timeout=WATCHDOG_SECONDS)
        self.kill()


@pytest.fixture(scope="session", autouse=True)
def _fuse() -> None:
    try:
        check_possible()
    except EntrepotError as error:
        pytest.skip(str(error))


@pytest.fixture
def new_mount(module_daemon: Any, tmp_path: Path) -> Iterator[Callable[..., Mount]]:
    """``new_mount(*options, name="mnt", address=...)``: another mount of the session."""
    mounts: list[Mount] = []

    def start(*options: str, name: str = "mnt", address: str | None = None) -> Mount:
        mount = Mount(tmp_path / name, tmp_path / f"{name}.log")
        mounts.append(mount)
        mount.start(address or module_daemon.address, "--session", SESSION, *options)
        return mount

    yield start
    for mount in mounts:
        mount.end()
    connections.close_all()


@pytest.fixture(scope="module")
def module_mount(module_daemon: Any) -> Iterator[Mount]:
    """The mount of the tests of one module."""
    folder = Path(tempfile.mkdtemp(prefix="emnt-"))
    mount = Mount(folder / "mnt", folder / "log")
    try:
        mount.start(module_daemon.address, "--session", SESSION)
        yield mount
    finally:
        mount.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def mount(module_mount: Mount, store: entrepot.Store) -> Mount:
    """The same, empty at the beginning of the test."""
    for folder, _, _ in os.walk(module_mount.folder, topdown=False):
        if folder != str(module_mount.folder):
            os.rmdir(folder)
    assert os.listdir(module_mount.folder) == []
    return module_mount


@pytest.fixture
def root(mount: Mount) -> Path:
    """Its folder."""
    return mount.folder


@pytest.fixture
def store(module_daemon: Any) -> Iterator[entrepot.Store]:
    """The session that is mounted, without objects."""
    with entrepot.connect(module_daemon.address, session=SESSION) as opened:
        for info in opened.list():
            opened.delete(info.id)
        yield opened


@pytest.fixture
def encoded(module_daemon: Any) -> Callable[..., list[str]]:
    """``encoded(oid)``: the suffixes in which an object is in the cache of encoded files."""

    def suffixes(oid: Any) -> list[str]:
        with entrepot.connect(module_daemon.address, scope="entrepot", session="entrepot.views") as views:
            names = [name for info in views.list() for name in info.names if f":{oid}:" in name]
        return sorted("." + name.rpartition(".")[2] for name in names)

    return suffixes
