"""The base class of files opened for writing, and its variant that compresses what is written."""

from __future__ import annotations

import io
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Output(io.BufferedIOBase):
    """A file that can only be written, from its start to its end, and is discarded on an exception in its block.

    Attributes:
        starts_text: set while a text file is made on top: the file then claims to be seekable, because only in a
            seekable file does Python look for the start, where UTF-16 needs a byte order mark.
    """

    starts_text = False

    def discard(self) -> None:
        """Give up what was written."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Give up what was written, with a warning: the file is not complete, because nobody has closed it."""
        raise NotImplementedError

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self.starts_text

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        self.close()


class CompressedWriter(Output):
    """Bytes to be compressed into an object, which is closed, or discarded, together with this file.

    Args:
        compressor: the file of a compression library that writes to ``target``.
        target: the object.
    """

    def __init__(self, compressor: Any, target: Output) -> None:
        self._compressor = compressor
        self._target = target
        self._size = 0

    def write(self, data: Buffer, /) -> int:
        self._compressor.write(data)
        nbytes = memoryview(data).nbytes
        self._size += nbytes
        return nbytes

    def tell(self) -> int:
        return self._size

    def discard(self) -> None:
        self._target.discard()

    def abandon(self) -> None:
        self._target.abandon()

    def close(self) -> None:
        if not self.closed:
            try:
                self._compressor.close()
                self._target.close()
            finally:
                super().close()

    def __del__(self) -> None:
        with suppress(AttributeError):
            if not self.closed:
                self.abandon()
                self.close()
