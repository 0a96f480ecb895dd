"""A start that cannot succeed, for want of processes or file sizes: it says why, ends at once, and leaves nothing."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from entrepot._daemon import launcher

FIRST_UID = 34_600  # users without any process, one for each limit
ENOUGH = 20  # processes and threads for a store
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without processes")


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

    def log_text(self) -> str:
        """Return its log."""
        return self.log.read_text() if self.log.exists() else ""


def processes_of(uid: int) -> list[int]:
    pids: list[int] = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == uid and launcher.is_running(int(name)):
                pids.append(int(name))
    return pids


def kill_all_of(uid: int) -> None:
    """Kill a user's processes, including those with which keeper and daemon replace each other meanwhile."""
    while pids := processes_of(uid):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@needs_root
@pytest.mark.parametrize("limit", [*range(1, 11), ENOUGH])
def test_few_processes_for_a_store(folder: Path, wait_until: Callable[..., None], limit: int) -> None:
    uid = FIRST_UID + limit
    start = Start(folder, {resource.RLIMIT_NPROC: limit}, uid)
    try:
        if start.is_ready:
            assert limit >= 10, "it has more threads than that"
            start.process.send_signal(signal.SIGTERM)
            assert start.process.wait(60) == 0, start.log_text()
        else:
            assert limit < ENOUGH, start.log_text()
            assert start.process.wait(60) == 1, start.log_text()
            assert "ulimit -u" in start.log_text()
            assert "bort" not in start.log_text()
            assert start.log_text().count(" exited: ") <= 1, "it is not tried again"
        wait_until(lambda: not processes_of(uid), "the last process to end", 10)
        assert not list(start.spill.glob("*")), "a spill folder that was never used"
    finally:
        kill_all_of(uid)
        start.process.wait(60)


def test_small_files_for_a_store(folder: Path) -> None:
    start = Start(folder, {resource.RLIMIT_FSIZE: 1 << 30})
    try:
        assert not start.is_ready
        assert start.process.wait(60) == 1, start.log_text()
    finally:
        start.process.kill()
        start.process.wait(60)
    assert "ulimit -f" in start.log_text()
    assert start.log_text().count(" exited: ") == 1, "what cannot change is not tried again"
    assert not list(start.spill.glob("*"))


SMALL_ADDRESS_SPACE_CODE = """
import resource, sys
import entrepot

entrepot.connect, entrepot.AccessDenied  # loads the modules
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
try:
    entrepot.connect(sys.argv[1])
except entrepot.AccessDenied as error:
    print(error)
"""


def test_few_addresses_for_a_client(folder: Path) -> None:
    start = Start(folder, {})
    try:
        assert start.is_ready
        result = subprocess.run(
            [sys.executable, "-c", SMALL_ADDRESS_SPACE_CODE, f"unix://{start.home}/s.sock"],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        start.process.terminate()
        start.process.wait(60)
    assert "ulimit -v" in result.stdout, result.stdout + result.stderr


CLIENT_CODE = """
import os, resource, signal, sys
import entrepot
from entrepot import codec

entrepot.connect, codec.encode_value([1])  # loads what this user may not be able to read
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))

def tasks(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/task")) if os.stat(f"/proc/{pid}").st_uid == os.getuid() else 0
    except OSError:
        return 0

with entrepot.connect(sys.argv[1]) as store:
    small = store.put(b"s" * 1000)
    status = store.status()
    others = sum(tasks(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != status["pid"])
    _, most = resource.prlimit(status["keeper_pid"], resource.RLIMIT_NPROC)
    resource.prlimit(status["keeper_pid"], resource.RLIMIT_NPROC, (others + 2, most))  # for the daemon and its log
    os.kill(status["pid"], signal.SIGKILL)
    print(store.get(small) == b"s" * 1000, store.get(store.put(b"t" * 1000)) == b"t" * 1000)
    pid = store.status()["pid"]
    print(pid != status["pid"], len(os.listdir(f"/proc/{pid}/task")))
    resource.prlimit(pid, resource.RLIMIT_NPROC, (most, most))
    print(len(store.get(store.put(bytes(40 << 20)))), store.status()["pid"] == pid)
"""


@needs_root
def test_a_restarted_daemon_does_without_threads_until_it_can_have_them(folder: Path) -> None:
    uid = FIRST_UID
    start = Start(folder, {resource.RLIMIT_NPROC: 100}, uid)
    try:
        assert start.is_ready, start.log_text()
        done = subprocess.run(
            [sys.executable, "-c", CLIENT_CODE, f"unix://{start.home}/s.sock", str(uid)],
            env=os.environ | {"HOME": str(start.home), "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.stdout == f"True True\nTrue 2\n{40 << 20} True\n", done.stdout + done.stderr + start.log_text()
        assert "continuing without it for now: cannot start the thread that allocates memory" in start.log_text()
    finally:
        kill_all_of(uid)
        start.process.wait(60)
