"""Files that are being written. Nobody but their writer sees them before they are closed.

States::

    new ──write, truncate──▶ changed ──closed──▶ stored      a stored draft that is written to is changed again
     └───────────────────────────┴──deleted, writer killed──▶ discarded
"""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from entrepot_mount.content import Content

_COPY_BYTES = 8 << 20


class Draft:
    """The bytes of a file that is being written, in anonymous memory. Thread-safe. Its registry closes it.

    Args:
        path: where it is to be stored.
        owner: the process that writes it, which alone sees it under its path; 0: unknown, so everybody does.
        limit: bytes that it may have.
        seed: what it starts with; None: nothing.

    Attributes:
        path: changes when the file is renamed.
        owner: as given.
        handles: how many descriptors are open. Guarded by the file system's lock.
    """

    def __init__(self, path: str, owner: int, limit: int, seed: Content | None = None) -> None:
        self.path = path
        self.owner = owner
        self.handles = 0
        self._limit = limit
        self._lock = threading.Lock()
        self._file = os.memfd_create("entrepot-draft", os.MFD_CLOEXEC)
        self._written = False  # guarded by _lock: bytes have changed since it was stored last
        self._stored = False  # guarded by _lock: its path leads to the object with its content
        self._new = seed is None  # guarded by _lock: to be stored at its end, even if nothing is written
        self._discarded = False  # guarded by _lock
        self._final_size = 0  # guarded by _lock
        if seed is not None:
            try:
                self._check_size(seed.size)
                for offset in range(0, seed.size, _COPY_BYTES):
                    self._write(offset, seed.read(offset, _COPY_BYTES))
            except BaseException:
                os.close(self._file)
                raise

    @property
    def size(self) -> int:
        """In bytes; after the end, what it was."""
        with self._lock:
            return self._size()

    @property
    def hidden(self) -> bool:
        """Whether its path leads to the stored object instead: it has been stored as it is, or was discarded."""
        with self._lock:
            return self._discarded or (self._stored and not self._written)

    def read(self, offset: int, size: int) -> bytes:
        """At most ``size`` bytes from ``offset`` on."""
        return os.pread(self._file, size, offset)

    def write(self, offset: int, data: Buffer) -> int:
        """Write bytes; returns how many.

        Raises:
            OSError: ``ENOSPC``: no store of this size could hold it. It is discarded then, since it is incomplete.
        """
        with self._lock:
            nbytes = memoryview(data).nbytes
            try:
                self._check_size(offset + nbytes)
            except OSError:
                self._discarded = True
                raise
            self._write(offset, data)
            self._written = True
            return nbytes

    def truncate(self, size: int, *, pending: bool = False) -> None:
        """Cut or extend it.

        Args:
            size: in bytes.
            pending: whether this alone is no reason to store it before its last descriptor is closed: a shell empties
                a file, and closes a descriptor of it, before the program that will write has even started.

        Raises:
            OSError: ``ENOSPC``: no store of this size could hold it.
        """
        with self._lock:
            self._check_size(size)
            os.ftruncate(self._file, size)
            if pending:
                self._stored, self._new = False, True
            else:
                self._written = True

    def store(self, put: Callable[[str, memoryview], None], *, last: bool) -> None:
        """Store it if it has changed.

        Args:
            put: stores bytes under a path.
            last: whether this is its end, so that it is also stored if nothing was written.

        Raises:
            Anything that ``put`` raises; the draft is discarded then.
        """
        with self._lock:
            if self._discarded or not (self._written or (last and self._new)):
                return
            try:
                put(self.path, self._view())
            except BaseException:
                self._discarded = True
                raise
            self._written, self._new, self._stored = False, False, True

    def discard(self) -> None:
        """Give it up. Its descriptors remain usable; nothing of it is stored."""
        with self._lock:
            self._discarded = True

    def close(self) -> None:
        """Return its memory. Idempotent; called when no descriptor is open."""
        with self._lock:
            self._discarded = True
            if self._file >= 0:
                self._final_size = self._size()
                os.close(self._file)
                self._file = -1

    def _view(self) -> memoryview:
        import mmap

        size = self._size()
        return memoryview(mmap.mmap(self._file, size, prot=mmap.PROT_READ)) if size else memoryview(b"")

    def _size(self) -> int:
        return self._final_size if self._file < 0 else os.fstat(self._file).st_size

    def _write(self, offset: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        while view.nbytes:
            written = os.pwrite(self._file, view, offset)
            view, offset = view[written:], offset + written

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise OSError(
                errno.ENOSPC, f"a file of {size} bytes does not fit in a store of {self._limit} bytes", self.path
            )
