"""The ends of pipes as Python file objects: bytes, in order, once."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from entrepot_pipes.names import PipeName

if TYPE_CHECKING:
    from entrepot_pipes.import_end import Import

_BUFFER_BYTES = 1 << 20
# Programs look at the beginning of a text and rewind (csv.Sniffer): so much of it is kept for that.
_REWIND_BYTES = 1 << 20

_READ_MODES = frozenset({"r", "rb", "rt", "br", "tr"})
_WRITE_MODES = frozenset({"w", "wb", "wt", "bw", "tw", "x", "xb", "xt", "bx", "tx"})

# Ends that are being written: an exception that ends the program makes them fail.
_open_writers: WeakSet[PipeWriter] = WeakSet()


def check_mode(name: str, mode: str) -> bool:
    """Whether the mode reads (or else writes).

    Raises:
        UnsupportedOperation: a mode that a pipe does not have.
    """
    if mode in _READ_MODES:
        return True
    if mode in _WRITE_MODES:
        return False
    raise io.UnsupportedOperation(
        f"{name} is a pipe: it is read from beginning to end (r) or written once (w), and does not know mode {mode!r};"
        " to append or to change, write a file"
    )


class PipeReader(io.RawIOBase):
    """The text that comes out of a pipe. The pipe is opened by the first read, which waits for the other end."""

    def __init__(self, name: str, target: PipeName | str) -> None:
        super().__init__()
        self.name = name
        self.mode = "rb"
        self._target = target
        self._import: Import | None = None
        self._head: bytes | None = b""  # all that was read so far, while that is little; None: it is not kept
        self._read_bytes = 0  # from the pipe
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._take(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._take(-1)

    def _take(self, size: int) -> bytes:
        self._check_open()
        if self._head is not None and self._position < len(self._head):
            end = len(self._head) if size < 0 else self._position + size
            again = self._head[self._position : end]
            self._position += len(again)
            return again + self._take(-1) if size < 0 else again
        if self._import is None:
            # Loads Arrow, which a program that opens no pipe should not.
            from entrepot_pipes import pipe

            self._import = pipe.open_import(self._target, form="text")
        data = self._import.read_text(size)
        self._position += len(data)
        self._read_bytes += len(data)
        if self._head is not None:
            self._head = self._head + data if self._read_bytes <= _REWIND_BYTES else None
        return data

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        target = offset + (self._position if whence == io.SEEK_CUR else 0)
        if whence == io.SEEK_END or (target != self._position and self._head is None):
            what = "has no end yet" if whence == io.SEEK_END else "goes forward only"
            raise io.UnsupportedOperation(
                f"{self.name} is a pipe, which {what}: only the first {_REWIND_BYTES:,} bytes can be read again. A"
                " program that seeks or asks for the size needs a file, or `entrepot mount`"
            )
        while target > self._position and self._take(min(target - self._position, _BUFFER_BYTES)):
            pass
        self._position = max(0, min(target, self._read_bytes))
        return self._position

    def close(self) -> None:
        if not self.closed and self._import is not None:
            self._import.close()
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"I/O operation on a closed file: {self.name}")


class PipeWriter(io.RawIOBase):
    """The text that goes into a pipe. Closing it says that the text is complete; :meth:`abort`, that it is not."""

    def __init__(self, name: str, target: PipeName | str) -> None:
        from entrepot_pipes import pipe

        super().__init__()
        self.name = name
        self.mode = "wb"
        self._export = pipe.open_export(target, form="text")
        self._position = 0
        self._aborted = False
        _open_writers.add(self)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError(f"I/O operation on a closed file: {self.name}")
        if self._aborted:
            return len(data)  # what a buffer above still holds
        view = memoryview(data).cast("B")
        self._export.write_text(bytes(view))
        self._position += len(view)
        return len(view)

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset != self._position:
            raise io.UnsupportedOperation(f"{self.name} is a pipe: what was written is gone, and is not written again")
        return offset

    def abort(self, reason: str) -> None:
        """Make the reader fail, instead of taking what was written so far for everything."""
        if not self.closed and not self._aborted:
            self._aborted = True
            self._export.abort(reason)

    def close(self) -> None:
        if not self.closed:
            try:
                if not self._aborted:
                    self._export.close()
            finally:
                _open_writers.discard(self)
                super().close()


def abort_open_writers(reason: str) -> None:
    """The program fails: nothing that it was writing is complete."""
    for writer in list(_open_writers):
        writer.abort(reason)


class _BufferedWriter(io.BufferedWriter):
    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.raw.abort(f"{kind.__name__}: {error}")  # type: ignore[attr-defined]
        super().__exit__(kind, error, trace)


class _TextWriter(io.TextIOWrapper):
    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.buffer.raw.abort(f"{kind.__name__}: {error}")  # type: ignore[attr-defined]
        super().__exit__(kind, error, trace)


def open_binary(name: str, target: PipeName | str, mode: str) -> io.BufferedIOBase:
    """One end of a pipe as a binary file."""
    if check_mode(name, mode):
        return io.BufferedReader(PipeReader(name, target), _BUFFER_BYTES)
    return _BufferedWriter(PipeWriter(name, target), _BUFFER_BYTES)


def open_text(
    name: str,
    target: PipeName | str,
    mode: str,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> io.TextIOWrapper:
    """One end of a pipe as a text file, as ``open`` gives it."""
    binary: Any = open_binary(name, target, mode)
    wrapper = io.TextIOWrapper if binary.readable() else _TextWriter
    return wrapper(binary, encoding or "utf-8", errors, newline)
