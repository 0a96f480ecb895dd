"""A daemon of the benchmark's own, warm before anything is measured."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import entrepot
from entrepot.errors import StoreUnavailable

START_SECONDS = 30.0
WARM_SECONDS = 300.0


@contextmanager
def running(size: str) -> Iterator[str]:
    """Starts entrepotd and yields its address; ends it, and only it, at the end.

    Args:
        size: capacity, as ``entrepotd --size`` takes it.

    Raises:
        RuntimeError: it did not come up; the message holds its log.
    """
    folder = Path(tempfile.mkdtemp(prefix="ent-bench-"))
    address = f"unix://{folder}/store.sock"
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "entrepot.daemon_main", "--address", address, "--size", size]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait(process, address, folder / "log")
        yield address
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            with entrepot.connect(address) as store:
                store.wait_provisioned(WARM_SECONDS)
            return
        except StoreUnavailable as error:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the daemon did not come up: {error}\n{log.read_text(errors='replace')}") from error
            time.sleep(0.02)
