"""A start that cannot succeed, for want of processes or file sizes: it says why, ends at once, and leaves nothing."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from entrepot._daemon import launcher


@pytest.fixture
def folder() -> Iterator[Path]:
    """Folder that another user may be given; a limited user's program is in it."""
    path = Path(tempfile.mkdtemp(prefix="ep-"))
    path.chmod(0o755)
    shutil.copy2(launcher.daemon_binary(), path / "entrepotd")
    yield path
    shutil.rmtree(path, ignore_errors=True)


class Start:
    """An ``entrepotd`` that may not start, as the child of the test."""

    def __init__(self, folder: Path, limits: dict[int, int], uid: int | None = None) -> None:
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        self.spill = self.home / "spill"
        self.log = self.home / "log"
        if uid is not None:
            os.chown(self.home, uid, uid)

        def limit() -> None:
            for kind, value in limits.items():
                resource.setrlimit(kind, (value, value))
            if uid is not None:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)

        ready_read, ready_write = os.pipe()
        command = [
            *(str(folder / "entrepotd"), "--address", f"unix://{self.home}/s.sock", "--size", "64MiB"),
            *("--spill-path", str(self.spill), "--spill-reserve", "1MiB", "--spill-quota", "64MiB"),
            *("--log-file", str(self.log), "--ready-fd", str(ready_write)),
        ]
        self.process = subprocess.Popen(command, pass_fds=[ready_write], preexec_fn=limit, stderr=subprocess.DEVNULL)
        os.close(ready_write)
        with os.fdopen(ready_read, "rb") as ready:
            self.is_ready = ready.read(64) == b"ready\n"

    def said(self) -> str:
        """Return its log."""
        return self.log.read_text() if self.log.exists() else ""


def test_small_files_for_a_store(folder: Path) -> None:
    start = Start(folder, {resource.RLIMIT_FSIZE: 1 << 30})
    try:
        assert not start.is_ready
        assert start.process.wait(60) == 1, start.said()
    finally:
        start.process.kill()
        start.process.wait(60)
    assert "ulimit -f" in start.said()
    assert start.said().count(" exited: ") == 1, "what cannot change is not tried again"
    assert not list(start.spill.glob("*"))
