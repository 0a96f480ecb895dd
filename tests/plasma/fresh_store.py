"""In the place of ``plasma-store-server``: a front end with a store of its own, which ends with it.

This process becomes the front end. Plasma's tests end their server by SIGKILL and delete the folder of its socket right
after that: a process in between, or a signal that lets the front end tidy up, would have it remove its socket from a
folder that is being deleted.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from entrepot._daemon.launcher import daemon_binary, is_listening
from entrepot._daemon.plasma_front_end import front_end_binary

PR_SET_PDEATHSIG = 1
START_SECONDS = 60.0
_libc = ctypes.CDLL(None)


def _signal_at_end_of(parent: int) -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGTERM)


def _serve_store(socket: Path, log: Path, front_end: int) -> None:
    """Run the store until the front end has ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    _signal_at_end_of(front_end)
    with log.open("wb") as output:
        store = subprocess.Popen(
            [daemon_binary(), "--address", f"unix://{socket}", "--size", "1GiB", "--spill-path", "none"],
            stdout=output,
            stderr=output,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD}),
        )
    signal.sigwait({signal.SIGTERM, signal.SIGCHLD})
    store.terminate()
    store.wait()


def _become_front_end(address: str) -> NoReturn:
    program = str(front_end_binary())
    os.execv(program, [program, *sys.argv[1:], "--address", address])


def main() -> int:
    """Start the store, and become the front end."""
    if "--version" in sys.argv:
        return subprocess.run([front_end_binary(), "--version"], check=False).returncode
    with tempfile.TemporaryDirectory(prefix="plasma-") as folder:
        socket, log = Path(folder) / "s.sock", Path(folder) / "log"
        front_end = os.getpid()
        child = os.fork()
        if child == 0:
            _serve_store(socket, log, front_end)
            return 0  # and the folder goes
        end = time.monotonic() + START_SECONDS
        while not is_listening(f"unix://{socket}"):
            if os.waitpid(child, os.WNOHANG)[0] != 0 or time.monotonic() > end:
                print(log.read_text() if log.exists() else "the store did not start", file=sys.stderr)
                return 1
            time.sleep(0.002)
        _become_front_end(f"unix://{socket}")


if __name__ == "__main__":
    sys.exit(main())
