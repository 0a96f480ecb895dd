"""Text files opened for writing."""

from __future__ import annotations

import io
from contextlib import suppress
from types import TracebackType
from typing import Any, cast

from entrepot_io.filesystem.output import Output


class TextWriter(io.TextIOWrapper):
    """Text to be written to an object; as the file below it, it is discarded on an exception in its block.

    Args:
        target: the file below.
        options: encoding, errors and newline, as for ``open``.
    """

    def __init__(self, target: Output, **options: Any) -> None:
        self._target = target
        target.starts_text = True
        try:
            super().__init__(cast(Any, target), **options)
        finally:
            target.starts_text = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._target.discard()
        super().__exit__(kind, error, trace)

    def __del__(self) -> None:
        with suppress(ValueError):  # closed or detached
            if not self.closed:
                self._target.abandon()
                self.close()
