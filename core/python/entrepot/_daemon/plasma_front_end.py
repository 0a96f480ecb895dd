"""Runs ``entrepot-plasma-store``, the front end for Plasma clients, beside a store."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from entrepot._daemon.launcher import START_SECONDS, is_listening, is_running, listening_pids, tail_of
from entrepot.errors import InvalidArgument, StoreUnavailable

END_SECONDS = 5.0  # a front end notices within a second or two that its store has ended
_PROGRAM = "entrepot-plasma-store"
_SUPERVISED = "--keep-running"


def front_end_binary() -> Path:
    """Return the path of the ``entrepot-plasma-store`` that belongs to this package.

    Raises:
        StoreUnavailable: it is not installed.
    """
    path = Path(__file__).parents[1] / "bin" / _PROGRAM
    if path.is_file():
        return path
    raise StoreUnavailable(
        "the installed package contains no entrepot-plasma-store: install a wheel of entrepot, or build it where "
        "FlatBuffers is installed (on Debian or Ubuntu: apt-get install flatbuffers-compiler libflatbuffers-dev)"
    )


def start_front_end(path: Path, nbytes: int, address: str, log: Path) -> bool:
    """Start a detached front end, which is started again when it dies, and wait until it accepts connections.

    Returns:
        Whether it was started; False: the same one is running already.

    Args:
        path: absolute path of its socket.
        nbytes: how many bytes Plasma clients may occupy.
        address: of the store.
        log: file to append its log to.

    Raises:
        InvalidArgument: something listens at the socket already.
        StoreUnavailable: it exited, or was not ready within 20 seconds; the message has the end of its log.
    """
    command = [str(front_end_binary()), "-s", str(path), "-m", str(nbytes), "--address", address, _SUPERVISED]
    if _is_occupied(path):
        if any(words[1:] == command[1:] for words in _front_ends(address).values()):
            return False
        pids = " ".join(map(str, listening_pids(f"unix://{path}")))
        advice = f"end it first (kill {pids})" if pids else "end it first"
        raise InvalidArgument(f"--plasma {path}: something listens there already; {advice}, or choose another path")
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(log, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
        offset = out.tell()
        process = subprocess.Popen(
            # The shell puts it in the background and passes on how it ended if that was at once.
            [shutil.which("sh") or "/bin/sh", "-c", '"$@" & echo $!', _PROGRAM, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=out,
            cwd="/",
            start_new_session=True,
            text=True,
        )
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.wait()
        process.stdout.close()
    end = time.monotonic() + START_SECONDS
    while not is_listening(f"unix://{path}"):
        exited = not is_running(pid)
        if exited or time.monotonic() > end:
            outcome = "exited before it was ready" if exited else f"was not ready within {START_SECONDS:.0f} s"
            raise StoreUnavailable(
                f"entrepot-plasma-store {outcome} at {path}; the end of its log ({log}): {tail_of(log, offset)}"
            )
        time.sleep(0.01)
    return True


def end_front_ends(address: str) -> list[int]:
    """Wait until the front ends of a store that has ended have ended too; those in the background are told to.

    Returns:
        Those that still run after 5 seconds: something keeps them from it, such as SIGSTOP.
    """
    running = _front_ends(address)
    for pid, words in running.items():
        if _SUPERVISED in words:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + END_SECONDS
    while remaining := [pid for pid in running if is_running(pid)]:
        if time.monotonic() > end:
            return remaining
        time.sleep(0.01)
    return []


def _is_occupied(path: Path) -> bool:
    """Return whether a process listens at a socket, after waiting for one that was killed and is still exiting.

    The kernel releases a process's memory, its command line included, before it closes its sockets.
    """
    end = time.monotonic() + END_SECONDS
    while is_listening(f"unix://{path}"):
        pids = listening_pids(f"unix://{path}")
        if not pids or any(map(_command_line, pids)) or time.monotonic() > end:
            return True
        time.sleep(0.01)
    return False


def _front_ends(address: str) -> dict[int, list[str]]:
    """This user's front ends of the store at an address, and their command lines."""
    front_ends: dict[int, list[str]] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        words = _command_line(int(name))
        if words and Path(words[0]).name == _PROGRAM and address in words:
            front_ends[int(name)] = words
    return front_ends


def _command_line(pid: int) -> list[str]:
    """The command line of a process of this user; empty if it is another user's, or has begun to exit."""
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.getuid():
            return []
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        return []
