"""What all writers do at the end of a ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class WriterContext(ABC):
    """A context manager that closes a writer, or aborts it if an exception leaves the block: never a short result."""

    @abstractmethod
    def close(self) -> None:
        """End in order: everything has been written."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Give up, for this reason."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort(f"{kind.__name__}: {error}")
