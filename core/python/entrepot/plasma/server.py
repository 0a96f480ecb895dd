"""``start_plasma_store``: a store for as long as a block runs."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from entrepot._daemon.launcher import daemon_binary, is_listening
from entrepot.errors import InvalidArgument, StoreUnavailable

MIN_STORE_BYTES = 8 << 20
_START_SECONDS = 20.0
_STOP_SECONDS = 20.0


@contextmanager
def start_plasma_store(
    plasma_store_memory: int,
    use_valgrind: bool = False,
    use_profiler: bool = False,
    plasma_directory: Any = None,
    use_hugepages: bool = False,
    external_store: str | None = None,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a store for the duration of a ``with`` block; yield its socket's path and its process.

    Args:
        plasma_store_memory: its capacity in bytes; less than 8 MiB is raised to that. More than it can hold goes to
            disk.
        use_valgrind, use_profiler: not supported.
        plasma_directory, use_hugepages, external_store: accepted and not needed: the store's memory belongs to no
            directory, it uses huge pages where it can, and what does not fit is kept on disk in any case.

    Raises:
        InvalidArgument: valgrind or the profiler was asked for.
        StoreUnavailable: the store did not start.
    """
    if use_valgrind or use_profiler:
        raise InvalidArgument("entrepotd does not run under valgrind: start it by hand to examine it")
    folder = Path(tempfile.mkdtemp(prefix="entrepot-plasma-"))
    socket = folder / "plasma.sock"
    command = [
        *(str(daemon_binary()), "--address", f"unix://{socket}"),
        *("--size", str(max(int(plasma_store_memory), MIN_STORE_BYTES))),
    ]
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            _wait_until_listening(process, f"unix://{socket}")
            yield str(socket), process
        finally:
            _stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_listening(process: subprocess.Popen[bytes], address: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while not is_listening(address):
        code = process.poll()
        if code is not None:
            raise StoreUnavailable(f"entrepotd exited with code {code} at its start; its standard error has the reason")
        if time.monotonic() > end:
            raise StoreUnavailable(f"entrepotd did not accept connections at {address} within {_START_SECONDS:g} s")
        time.sleep(0.005)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
