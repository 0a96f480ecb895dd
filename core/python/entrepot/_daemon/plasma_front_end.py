"""Runs ``entrepot-plasma-store``, the front end for Plasma clients, beside a store."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from entrepot._daemon.launcher import is_listening, is_running, tail_of
from entrepot.errors import InvalidArgument, StoreUnavailable

START_SECONDS = 20.0


def front_end_binary() -> Path:
    """Return the path of the ``entrepot-plasma-store`` that belongs to this package.

    Raises:
        StoreUnavailable: it is not installed.
    """
    path = Path(__file__).parents[1] / "bin" / "entrepot-plasma-store"
    if path.is_file():
        return path
    raise StoreUnavailable(
        "the installed package contains no entrepot-plasma-store: install a wheel of entrepot, or build it where "
        "FlatBuffers is installed (on Debian or Ubuntu: apt-get install flatbuffers-compiler libflatbuffers-dev)"
    )


def start_front_end(path: Path, nbytes: int, address: str, log: Path) -> None:
    """Start a detached front end, which is started again when it dies, and wait until it accepts connections.

    Args:
        path: absolute path of its socket.
        nbytes: how many bytes Plasma clients may occupy.
        address: of the store.
        log: file to append its log to.

    Raises:
        InvalidArgument: something listens at the socket already.
        StoreUnavailable: it exited, or was not ready within 20 seconds; the message has the end of its log.
    """
    if is_listening(f"unix://{path}"):
        raise InvalidArgument(f"--plasma {path}: something listens there already; end it first, or choose another path")
    command = [str(front_end_binary()), "-s", str(path), "-m", str(nbytes), "--address", address, "--keep-running"]
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("ab") as out:
        offset = out.tell()
        process = subprocess.Popen(
            # The shell puts it in the background and passes on how it ended if that was at once.
            [shutil.which("sh") or "/bin/sh", "-c", '"$@" & echo $!', "entrepot-plasma-store", *command],
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
