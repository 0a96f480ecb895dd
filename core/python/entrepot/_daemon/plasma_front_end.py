"""Runs ``entrepot-plasma-store``, the front end for Plasma clients, beside a store."""

from __future__ import annotations

import time
from pathlib import Path

from entrepot._daemon import companions
from entrepot._daemon.companions import SUPERVISED, command_line
from entrepot._daemon.launcher import START_SECONDS, is_listening, listening_pids
from entrepot.errors import InvalidArgument, StoreUnavailable

_PROGRAM = "entrepot-plasma-store"


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
        StoreUnavailable: it exited, or was not ready within 20 seconds; the message has the end of its log. Or the same
            one runs, and does not serve.
    """
    command = [str(front_end_binary()), "-s", str(path), "-m", str(nbytes), "--address", address, SUPERVISED]
    if _runs_already(command, address, path):
        return False
    if _is_occupied(path, command):
        pids = " ".join(map(str, listening_pids(f"unix://{path}")))
        advice = f"end it first (kill {pids})" if pids else "end it first"
        raise InvalidArgument(f"--plasma {path}: something listens there already; {advice}, or choose another path")
    companions.start_in_background(command, f"{_PROGRAM} at {path}", log, lambda: is_listening(f"unix://{path}"))
    return True


def end_front_ends(address: str) -> list[int]:
    """Wait until the front ends of a store that has ended have ended too; those in the background are told to.

    Returns:
        Those that still run after 5 seconds: something keeps them from it, such as SIGSTOP.
    """
    running = _front_ends(address)
    companions.terminate_supervised(running)
    return companions.wait_ended(running)


def _runs_already(command: list[str], address: str, path: Path) -> bool:
    """Return whether the same front end runs, after waiting for it if it is just being started again.

    Raises:
        StoreUnavailable: it runs, and nothing listens at its socket for 20 seconds.
    """
    end = time.monotonic() + START_SECONDS
    while pids := [pid for pid, words in _front_ends(address).items() if words[1:] == command[1:]]:
        if is_listening(f"unix://{path}"):
            return True
        if time.monotonic() > end:
            raise StoreUnavailable(
                f"--plasma {path}: {_PROGRAM} (process {pids[0]}) runs, but has not served for {START_SECONDS:g} s; "
                "its log says why, or end it (kill) and start it again"
            )
        time.sleep(0.01)
    return False


def _is_occupied(path: Path, command: list[str]) -> bool:
    """Return whether a process listens at a socket, after waiting for one that was killed and is still exiting.

    That is the process that served for a supervisor with this command line, and ends with it. While it exits, the
    kernel first releases its memory, its command line included, then empties its table of descriptors, and closes what
    was in it last: in between, nobody seems to have the socket.
    """
    served = [word for word in command[1:] if word != SUPERVISED]
    end = time.monotonic() + companions.END_SECONDS
    while is_listening(f"unix://{path}"):
        lines = [words for words in map(command_line, listening_pids(f"unix://{path}")) if words]
        if any(words[1:] != served for words in lines) or time.monotonic() > end:
            return True
        time.sleep(0.01)
    return False


def _front_ends(address: str) -> dict[int, list[str]]:
    """This user's front ends of the store at an address, and their command lines."""
    return companions.processes(lambda words: Path(words[0]).name == _PROGRAM and address in words)
