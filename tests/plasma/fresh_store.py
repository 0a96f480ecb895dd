"""In the place of ``plasma-store-server``: a front end with a store of its own, which ends with it."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from entrepot._daemon.launcher import daemon_binary, is_listening
from entrepot._daemon.plasma_front_end import front_end_binary

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _end_with_parent() -> None:
    # Some of Plasma's tests end their server by SIGKILL.
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> int:
    """Run both until SIGTERM; return the front end's exit code."""
    if "--version" in sys.argv:
        return subprocess.run([front_end_binary(), "--version"], check=False).returncode
    with tempfile.TemporaryDirectory(prefix="plasma-") as folder:
        socket = Path(folder) / "s.sock"
        address = f"unix://{socket}"
        log = (Path(folder) / "log").open("wb")
        store = subprocess.Popen(
            [daemon_binary(), "--address", address, "--size", "1GiB", "--spill-path", "none"],
            stdout=log,
            stderr=log,
            preexec_fn=_end_with_parent,
        )
        try:
            end = time.monotonic() + 20
            while not is_listening(f"unix://{socket}"):
                if store.poll() is not None or time.monotonic() > end:
                    print(Path(log.name).read_text(), file=sys.stderr)
                    return 1
                time.sleep(0.002)
            front_end = subprocess.Popen(
                [front_end_binary(), *sys.argv[1:], "--address", address], preexec_fn=_end_with_parent
            )
            signal.signal(signal.SIGTERM, lambda *_: front_end.terminate())
            return front_end.wait()
        finally:
            store.terminate()
            store.wait()
            log.close()


if __name__ == "__main__":
    sys.exit(main())
