"""One lock per cache entry, so that one process decodes; it ends with its holder.

All locks of a store are in one file beside its socket, because that folder is what all of its clients have in common.
An entry has eight bytes of the file, chosen by its ID, and whoever decodes it holds a lock on them (an open file
description lock, which threads of a process do not share). The kernel releases it when the holder dies; a child that
was forked meanwhile closes its copy first. Two entries that have the same bytes merely wait for each other.

The lock saves work and protects nothing: if the file is deleted, two processes may decode the same table, and one of
the two identical objects replaces the other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from entrepot._daemon.settings import runtime_folder, socket_path
from entrepot.ids import ObjectID

_SLOTS = 1 << 16
_SLOT_BYTES = 8
_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, process

# Descriptors that have or are about to have a lock. Adding and removing an integer are single steps.
_held: set[int] = set()


def _after_fork_in_child() -> None:
    """Close what the parent has locked: otherwise its locks would outlive it with this process."""
    for descriptor in list(_held):
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


class HeldLock:
    """A lock that this thread holds until the end of the ``with`` block."""

    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor = descriptor
        self._offset = offset
        self._pid = os.getpid()

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(self, *_: object) -> None:
        if os.getpid() == self._pid:  # a forked child has closed it, and the number may have another meaning there
            _set_lock(self._descriptor, fcntl.F_UNLCK, self._offset)  # also for a child that has not closed it yet
            _held.discard(self._descriptor)
            os.close(self._descriptor)


class DecodeLocks:
    """The locks of one store's entries.

    Args:
        address: the store's.
    """

    def __init__(self, address: str) -> None:
        self._path = Path(f"{socket_path(address)}.decoding")

    def try_acquire(self, oid: ObjectID) -> HeldLock | None:
        """Return the lock of an entry; None: another thread or process has it."""
        offset = _offset_of(oid)
        descriptor = self._open()
        _held.add(descriptor)  # before it is locked: a child forked from now on closes it
        try:
            _set_lock(descriptor, fcntl.F_WRLCK, offset)
            os.pwrite(descriptor, os.getpid().to_bytes(_SLOT_BYTES, "little"), offset)
        except OSError as error:
            _held.discard(descriptor)
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        return HeldLock(descriptor, offset)

    def holder_of(self, oid: ObjectID) -> int:
        """Return the process ID of who last took the lock; 0: unknown."""
        descriptor = self._open()
        try:
            return int.from_bytes(os.pread(descriptor, _SLOT_BYTES, _offset_of(oid)), "little")
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self._path, flags, 0o600)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
        # The socket's folder is mounted read-only, in a pod, say. Clients that see it differently decode on their own.
        name = sha256(os.fsencode(self._path)).hexdigest()[:16]
        return os.open(runtime_folder() / f"{name}.decoding", flags, 0o600)


def _set_lock(descriptor: int, kind: int, offset: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, 0, offset, _SLOT_BYTES, 0))


def _offset_of(oid: ObjectID) -> int:
    return int.from_bytes(oid.binary[:4], "little") % _SLOTS * _SLOT_BYTES
