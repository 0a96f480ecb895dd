"""A lock among all processes that register at the pipes of a store. The kernel releases it when its holder dies."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from entrepot._daemon.settings import socket_path
from entrepot.errors import Timeout
from entrepot.file_locks import lock_within

# Holders keep it for milliseconds. Whoever waits this long waits for a process that was stopped meanwhile.
_SECONDS = 60.0


@contextmanager
def registration_lock(address: str) -> Iterator[None]:
    """Hold the lock of the store at this address.

    Raises:
        Timeout: another process has held it for a minute.
    """
    descriptor = _open(socket_path(address).parent)
    try:
        if not lock_within(descriptor, _SECONDS):
            raise Timeout(f"another process has registered at a pipe of {address} for {_SECONDS:g} s: was it stopped?")
        try:
            yield
        finally:
            # Explicitly, because a child that another thread forks meanwhile has the descriptor as well.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    """The file beside the store's socket, which everybody who reaches the store sees."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(folder / "pipes.lock", flags, 0o600)
    except PermissionError:  # a folder that others provide, such as /run
        return os.open(Path(tempfile.gettempdir()) / f"entrepot-pipes-{os.geteuid()}.lock", flags, 0o600)
