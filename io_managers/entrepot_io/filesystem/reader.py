"""Files opened for reading: views of an object's bytes, which stay the same when it is replaced or deleted."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer


class ObjectReader(io.BufferedIOBase):
    """An object as a file. ``read`` copies, as it must to return ``bytes``; ``readinto`` copies into the caller's
    memory, and ``read_buffer`` and ``getbuffer`` copy nothing.

    Args:
        fs, path, details: as fsspec's own files have them.
        view: the object's bytes.
    """

    mode = "rb"

    def __init__(self, fs: Any, path: str, details: dict[str, Any], view: memoryview) -> None:
        self.fs = fs
        self.path = path
        self.details = details
        self.size = view.nbytes
        self.blocksize = fs.blocksize
        self._view = view
        self._position = 0

    @property
    def full_name(self) -> str:
        """The file's URL."""
        return str(self.fs.unstrip_protocol(self.path))

    def info(self) -> dict[str, Any]:
        """The object's metadata when the file was opened."""
        return self.details

    def getbuffer(self) -> memoryview:
        """All bytes, without a copy."""
        self._check_open()
        return self._view

    def read_buffer(self, size: int | None = -1, /) -> memoryview:
        """As ``read``, without a copy. PyArrow prefers it to ``read``, so the tables that it reads lie in the store."""
        self._check_open()
        start = min(self._position, self.size)
        end = self.size if size is None or size < 0 else min(start + size, self.size)
        self._position = max(self._position, end)
        return self._view[start:end]

    def read(self, size: int | None = -1, /) -> bytes:
        return bytes(self.read_buffer(size))

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def readinto(self, buffer: Buffer, /) -> int:
        target = memoryview(buffer).cast("B")
        data = self.read_buffer(target.nbytes)
        target[: data.nbytes] = data
        return data.nbytes

    def readinto1(self, buffer: Buffer, /) -> int:
        return self.readinto(buffer)

    def peek(self, size: int = 0, /) -> bytes:
        """Bytes that follow, without moving on; ``readline`` uses it."""
        self._check_open()
        return bytes(self._view[self._position : self._position + max(size, io.DEFAULT_BUFFER_SIZE)])

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check_open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}.get(whence)
        if base is None:
            raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}, before the start of {self.path}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        self._check_open()
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._view = memoryview(b"")  # the object stays pinned only as long as views of it are used
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.path} is closed")

    def __reduce__(self) -> Any:
        return (_reopened, (self.fs, self.path, self.tell()))

    def __repr__(self) -> str:
        return f"<entrepot file {self.path!r}, {self.size} bytes>"


def _reopened(fs: Any, path: str, position: int) -> Any:
    file = fs.open(path, "rb")
    file.seek(position)
    return file
