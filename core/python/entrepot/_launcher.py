"""Start of the private daemon on first use; of any number of processes that try at once, exactly one starts it.

The daemon is detached from the process that started it: it has its own session (``setsid``) and another parent (the
shell in between exits at once), and inherits only its log and the pipe on which it reports that it is ready.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from entrepot import _pod
from entrepot._settings import Settings, runtime_folder, socket_path, state_folder
from entrepot.errors import EntrepotError, StoreUnavailable

START_SECONDS = 20.0
RETURN_SECONDS = 5.0  # how long to wait for a store whose socket was removed to recreate it; it checks every 2 s
_FEW_FILES = "; raise the limit of open files (ulimit -n)"
LISTENING = 0x10000  # flag __SO_ACCEPTCON in /proc/net/unix
# Batch systems and systemd kill everything in a job's cgroup when the job ends.
JOB_CGROUPS = ("slurm", "htcondor", "condor", "pbs", "torque", "lsf", "run-")


def daemon_binary() -> Path:
    """Return the path of the ``entrepotd`` that belongs to this package.

    Raises:
        StoreUnavailable: it is not installed.
    """
    named = os.environ.get("ENTREPOT_DAEMON_BINARY")
    if named:
        return Path(named)
    import entrepot

    for folder in entrepot.__path__:
        path = Path(folder) / "bin" / "entrepotd"
        if path.is_file():
            return path
    raise StoreUnavailable(
        "entrepotd is not in the installed package: reinstall entrepot, or name it by ENTREPOT_DAEMON_BINARY"
    )


def log_path() -> Path:
    """Return the path of the private daemon's log."""
    return state_folder() / "entrepotd.log"


def answers(address: str) -> bool:
    """Return whether anything listens at the address."""
    path = socket_path(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def ensure_running(settings: Settings) -> bool:
    """Start the private daemon unless it is running; return whether this call started it.

    Raises:
        StoreUnavailable: it may not be started here, or did not become ready; the message says why.
    """
    try:
        if answers(settings.address):
            return False
        _refuse_where_it_cannot_live()
        with _start_lock():
            if answers(settings.address):
                return False
            if _returns(settings.address):
                return False
            start(
                settings.address,
                size=settings.private_size,
                idle_exit_seconds=settings.private_idle_exit_seconds,
                log=log_path(),
            )
    except EntrepotError:
        raise
    except OSError as error:
        hint = _FEW_FILES if error.errno in (errno.EMFILE, errno.ENFILE) else ""
        raise StoreUnavailable(f"the private store cannot be started at {settings.address}: {error}{hint}") from error
    return True


def _returns(address: str) -> bool:
    """Wait a few seconds for a running store that lost its socket file to recreate it; return whether it answers."""
    end = time.monotonic() + RETURN_SECONDS
    while listeners(address):
        if answers(address):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return answers(address)  # if the socket was recreated while listeners() ran, it can seem that nobody holds it


def start(address: str, *, size: str | None, idle_exit_seconds: int, log: Path, extra: tuple[str, ...] = ()) -> None:
    """Start a detached daemon and wait until it accepts connections.

    Args:
        address: address to listen at.
        size: capacity, in the syntax of ``entrepotd --size``; None: its default.
        idle_exit_seconds: exit after being idle for so long; 0: never.
        log: file to append its log to.
        extra: further arguments for ``entrepotd``.

    Raises:
        StoreUnavailable: it exited, or was not ready within 20 seconds; the message has the end of its log.
    """
    command = [str(daemon_binary()), "--address", address, "--idle-exit", str(idle_exit_seconds), *extra]
    if size is not None:
        command += ["--size", size]
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shell = shutil.which("sh") or "/bin/sh"
    ready_read, ready_write = os.pipe()
    try:
        log_fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        before = os.fstat(log_fd).st_size
        try:
            # The shell puts the daemon in the background and exits, so the daemon is not a child of this process.
            subprocess.run(
                [shell, "-c", '"$@" &', "entrepotd", *command, "--ready-fd", str(ready_write)],
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                cwd="/",
                start_new_session=True,
                pass_fds=(ready_write,),
                check=True,
            )
        finally:
            os.close(log_fd)
            os.close(ready_write)
        if (ready := _wait_ready(ready_read)) is not True:
            said = _tail(log, before)
            how = f"was not ready within {START_SECONDS:.0f} s" if ready is None else "ended before it was ready"
            raise StoreUnavailable(
                f"entrepotd {how} at {address}"
                f"{_FEW_FILES if f'errno {errno.EMFILE}' in said else ''}; the end of its log ({log}): {said}"
            )
    finally:
        os.close(ready_read)
    _warn_of_shared_fate()


def listeners(address: str) -> list[int]:
    """Return this user's processes that hold the address's listening socket: keeper and daemon, of any version."""
    path = str(socket_path(address))
    targets: set[str] = set()
    for line in Path("/proc/net/unix").read_text(encoding="utf-8", errors="surrogateescape").splitlines()[1:]:
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[7] == path and int(fields[3], 16) & LISTENING:
            targets.add(f"socket:[{fields[6]}]")
    return [pid for pid in _processes() if not targets.isdisjoint(_held(pid))]


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _held(pid: int) -> Iterator[str]:
    """Yield the targets of a process's descriptors, as far as we may read them; tolerates concurrent changes."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return  # another user's process, or it has exited
    for descriptor in descriptors:
        with suppress(OSError):  # closed in the meantime
            yield os.readlink(f"/proc/{pid}/fd/{descriptor}")


def stopped(pids: list[int]) -> str:
    """Explain, for an error about processes that do not exit, which of them are stopped; empty if none is."""
    still = [pid for pid in pids if _state(pid) in ("T", "t")]
    if not still:
        return ""
    numbers = " ".join(map(str, still))
    return f": stopped (SIGSTOP, a debugger): {numbers}; it ends when they go on: kill -CONT {numbers}"


def _state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[0]


def stop(pid: int, seconds: float = 20.0) -> bool:
    """Send the process SIGTERM and wait; return whether it exited."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return True
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not runs(pid):
            return True
        time.sleep(0.01)
    return False


def runs(pid: int) -> bool:
    """Return whether the process is still running; a zombie counts as exited.

    A container's first process may take long to reap the processes it inherited, or never do so. But a process whose
    first thread has exited keeps its resources, including its listening socket, until its last thread has exited.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    fields = stat.rpartition(")")[2].split()  # from field 3 of proc(5) on: [0] is the state, [17] the thread count
    return fields[0] not in ("Z", "X") or int(fields[17]) > 1


def _wait_ready(fd: int) -> bool | None:
    """Wait for the daemon; return True if it is ready, False if it exited before, None on timeout."""
    end = time.monotonic() + START_SECONDS
    while (left := end - time.monotonic()) > 0:
        readable, _, _ = select.select([fd], [], [], left)
        if readable:
            return os.read(fd, 64) != b""  # end of file: it exited without becoming ready
    return None


def _tail(log: Path, before: int) -> str:
    with log.open("rb") as file:
        file.seek(before)
        text = file.read()[-2000:].decode("utf-8", "replace").strip()
    return text or "(it wrote nothing)"


@contextmanager
def _start_lock() -> Iterator[None]:
    path = runtime_folder() / "start.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise StoreUnavailable(
                        f"another process has been starting the private daemon for {START_SECONDS:.0f} s "
                        f"(it holds {path}): see 'entrepot logs'"
                    ) from None
                time.sleep(0.005)
        yield
    finally:
        os.close(fd)


def _refuse_where_it_cannot_live() -> None:
    if _pod.in_pod():
        raise StoreUnavailable(_pod.not_configured())


def _warn_of_shared_fate() -> None:
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    except OSError:
        return
    if any(name in own for name in JOB_CGROUPS):
        warnings.warn(
            f"the private daemon runs in this job's control group ({own.strip().splitlines()[-1]}) and ends with it: "
            "start one outside with 'entrepot start' if later jobs are to find its objects",
            RuntimeWarning,
            stacklevel=3,
        )
