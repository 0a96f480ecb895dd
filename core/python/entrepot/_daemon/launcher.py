"""Start of the private daemon on first use; of any number of processes that try at once, exactly one starts it.

The daemon is detached from the process that started it: it has its own session (``setsid``) and another parent (the
shell in between exits at once), and inherits only its log and the pipe on which it reports that it is ready.
"""

from __future__ import annotations

import errno
import hashlib
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

from entrepot._daemon import kubernetes_env
from entrepot._daemon.settings import Settings, private_address, runtime_folder, socket_path, state_folder
from entrepot.errors import AccessDenied, EntrepotError, StoreUnavailable
from entrepot.file_locks import lock_within

START_SECONDS = 20.0
SOCKET_RETURN_SECONDS = 5.0  # how long to wait for a store whose socket was removed to recreate it; it checks every 2 s
_OPEN_FILES_HINT = "; raise the limit of open files (ulimit -n)"
_PROCESSES_HINT = (
    "; the limit of processes and threads is reached (ulimit -u, or the control group's pids.max): raise it"
)
LISTENING = 0x10000  # flag __SO_ACCEPTCON in /proc/net/unix
# Batch systems and systemd kill everything in a job's cgroup when the job ends.
JOB_CGROUPS = ("slurm", "htcondor", "condor", "pbs", "torque", "lsf", "run-")


def daemon_binary() -> Path:
    """Return the path of the ``entrepotd`` that belongs to this package.

    Raises:
        StoreUnavailable: it is not installed.
    """
    override = os.environ.get("ENTREPOT_DAEMON_BINARY")
    if override:
        return Path(override)
    path = Path(__file__).parents[1] / "bin" / "entrepotd"  # beside the sources, in a checkout as in a wheel
    if path.is_file():
        return path
    raise StoreUnavailable(
        "the installed package contains no entrepotd: reinstall entrepot, or set ENTREPOT_DAEMON_BINARY to its path"
    )


def log_path(address: str) -> Path:
    """Return the path of the log of a store started in the background: a file for each address."""
    with suppress(EntrepotError):  # there is no private address here
        if address == private_address():
            return state_folder() / "entrepotd.log"
    digest = hashlib.sha256(os.fsencode(socket_path(address))).hexdigest()
    return state_folder() / f"entrepotd-{digest[:16]}.log"


def log_of(address: str) -> Path:
    """Return the path of the log of the store at an address: of a running one, the file that it writes to.

    Raises:
        StoreUnavailable: it writes to no file, or none runs there and none was started in the background.
    """
    expected = log_path(address)
    for pid in listening_pids(address):
        try:
            output = Path(os.readlink(f"/proc/{pid}/fd/2"))
        except OSError:
            continue  # it has exited
        if output.is_file():
            return output
        raise StoreUnavailable(
            f"the store at {address} (process {pid}) was started by hand and logs to its standard error ({output}): "
            "look where it was started, or start it with --log-file"
        )
    if not expected.is_file():
        raise StoreUnavailable(
            f"no store runs at {address}, and there is no log at {expected}, so none was started in the background "
            "there: pass --address, or --log-file if its log is elsewhere"
        )
    return expected


def is_listening(address: str) -> bool:
    """Return whether anything listens at the address that this user may connect to."""
    return _connection_error(address) is None


def is_forbidden(address: str) -> bool:
    """Return whether this user may not connect to the address: the socket, or its folder, is another user's."""
    return isinstance(_connection_error(address), PermissionError)


def _connection_error(address: str) -> OSError | None:
    path = socket_path(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(path))
        except OSError as error:
            return error
        return None


def ensure_running(settings: Settings) -> bool:
    """Start the private daemon unless it is running; return whether this call started it.

    Raises:
        StoreUnavailable: it may not be started here, or did not become ready; the message says why.
        AccessDenied: this user may not write to the runtime folder.
    """
    with _system_errors_explained(settings.address):
        if is_listening(settings.address):
            return False
        _refuse_in_pod()
        with _start_lock():
            if is_listening(settings.address):
                return False
            if _wait_for_socket(settings.address):
                return False
            start(
                settings.address,
                size=settings.private_size,
                idle_exit_seconds=settings.private_idle_exit_seconds,
                log=log_path(settings.address),
            )
    return True


@contextmanager
def _system_errors_explained(address: str) -> Iterator[None]:
    try:
        yield
    except EntrepotError:
        raise
    except OSError as error:
        hint = _OPEN_FILES_HINT if error.errno in (errno.EMFILE, errno.ENFILE) else ""
        if error.errno == errno.EAGAIN:
            hint = _PROCESSES_HINT
        kind = AccessDenied if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else StoreUnavailable
        raise kind(f"the store cannot be started at {address}: {error}{hint}") from error


def _wait_for_socket(address: str) -> bool:
    """Wait a few seconds for a running store that lost its socket file to recreate it; return whether it answers."""
    end = time.monotonic() + SOCKET_RETURN_SECONDS
    while listening_pids(address):
        if is_listening(address):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    # If the socket was recreated while listening_pids() ran, it can seem that nobody holds it.
    return is_listening(address)


def start(
    address: str, *, size: str | None, idle_exit_seconds: int | None, log: Path, extra: tuple[str, ...] = ()
) -> None:
    """Start a detached daemon and wait until it accepts connections.

    Args:
        address: address to listen at.
        size: capacity, in the syntax of ``entrepotd --size``; None: its default.
        idle_exit_seconds: exit after being idle for so long; 0: never; None: its default, or what ``extra`` says.
        log: file to append its log to.
        extra: further arguments for ``entrepotd``.

    Raises:
        StoreUnavailable: it exited, or was not ready within 20 seconds; the message has the end of its log.
        AccessDenied: a folder or the program may not be used.
    """
    with _system_errors_explained(address):
        _start(address, size, idle_exit_seconds, log, extra)


def _start(address: str, size: str | None, idle_exit_seconds: int | None, log: Path, extra: tuple[str, ...]) -> None:
    command = [str(daemon_binary()), "--address", address, *extra]
    if idle_exit_seconds is not None:
        command += ["--idle-exit", str(idle_exit_seconds)]
    if size is not None:
        command += ["--size", size]
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shell = shutil.which("sh") or "/bin/sh"
    ready_read, ready_write = os.pipe()
    try:
        log_fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        log_offset = os.fstat(log_fd).st_size
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
                timeout=START_SECONDS,  # bash waits between its attempts to fork
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            log_tail = tail_of(log, log_offset)
            raise StoreUnavailable(
                f"the shell that starts entrepotd in the background failed ({log_tail}){_PROCESSES_HINT}"
            ) from error
        finally:
            os.close(log_fd)
            os.close(ready_write)
        if (ready := _wait_ready(ready_read)) is not True:
            log_tail = tail_of(log, log_offset)
            outcome = f"was not ready within {START_SECONDS:.0f} s" if ready is None else "exited before it was ready"
            hint = _OPEN_FILES_HINT if f"errno {errno.EMFILE}" in log_tail else ""
            raise StoreUnavailable(f"entrepotd {outcome} at {address}{hint}; the end of its log ({log}): {log_tail}")
    finally:
        os.close(ready_read)
    _warn_if_in_job_cgroup()


def listening_pids(address: str) -> list[int]:
    """Return this user's processes that hold the address's listening socket: keeper and daemon, of any version."""
    path = str(socket_path(address))
    targets: set[str] = set()
    for line in Path("/proc/net/unix").read_text(encoding="utf-8", errors="surrogateescape").splitlines()[1:]:
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[7] == path and int(fields[3], 16) & LISTENING:
            targets.add(f"socket:[{fields[6]}]")
    return [pid for pid in _process_ids() if not targets.isdisjoint(_descriptor_targets(pid))]


def _process_ids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _descriptor_targets(pid: int) -> Iterator[str]:
    """Yield the targets of a process's descriptors, as far as we may read them; tolerates concurrent changes."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return  # another user's process, or it has exited
    for descriptor in descriptors:
        with suppress(OSError):  # closed in the meantime
            yield os.readlink(f"/proc/{pid}/fd/{descriptor}")


def describe_stopped(pids: list[int]) -> str:
    """Explain, for an error about processes that do not exit, which of them are stopped; empty if none is."""
    stopped_pids = [pid for pid in pids if _process_state(pid) in ("T", "t")]
    if not stopped_pids:
        return ""
    numbers = " ".join(map(str, stopped_pids))
    return f"; suspended (by SIGSTOP or a debugger): {numbers}; resume them to let it exit: kill -CONT {numbers}"


def _process_state(pid: int) -> str:
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
        if not is_running(pid):
            return True
        time.sleep(0.01)
    return False


def is_running(pid: int) -> bool:
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
    while (remaining := end - time.monotonic()) > 0:
        readable, _, _ = select.select([fd], [], [], remaining)
        if readable:
            return os.read(fd, 64) != b""  # end of file: it exited without becoming ready
    return None


def tail_of(log: Path, offset: int) -> str:
    """Return the last 2,000 bytes of what a log has from an offset on."""
    with log.open("rb") as file:
        file.seek(offset)
        text = file.read()[-2000:].decode("utf-8", "replace").strip()
    return text or "(it logged nothing)"


@contextmanager
def _start_lock() -> Iterator[None]:
    path = runtime_folder() / "start.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not lock_within(fd, START_SECONDS):
            raise StoreUnavailable(
                f"another process has been starting the private daemon for {START_SECONDS:.0f} s "
                f"(it holds {path}): see 'entrepot logs'"
            )
        yield
    finally:
        os.close(fd)


def _refuse_in_pod() -> None:
    if kubernetes_env.in_pod():
        raise StoreUnavailable(kubernetes_env.explain_not_configured())


def _warn_if_in_job_cgroup() -> None:
    try:
        own_cgroups = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    except OSError:
        return
    if any(name in own_cgroups for name in JOB_CGROUPS):
        warnings.warn(
            f"the private daemon runs in this job's control group ({own_cgroups.strip().splitlines()[-1]}) and ends "
            "with it: if later jobs need its objects, start one outside the job with 'entrepot start'",
            RuntimeWarning,
            stacklevel=3,
        )
