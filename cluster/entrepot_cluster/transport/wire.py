"""What carries a connection's bytes: one interface over plain sockets, TLS and UCX."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entrepot_cluster.transport.endpoints import SourceObject


class Wire(ABC):
    """Bytes in both directions. One thread receives at a time, and one sends; :meth:`interrupt` is for any.

    Every wait is for progress: without any for the wire's time limit, calls raise ``BlockingIOError`` or
    ``TimeoutError``. Another ``OSError`` means that the connection has ended.
    """

    @abstractmethod
    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """Send all bytes of all buffers; returns how many these are."""

    def send_objects(self, head: bytes, objects: Sequence[SourceObject]) -> int:
        """Send a frame's head, and as its payload the buffers of objects; returns how many bytes these are."""
        return self.send([head, *(buffer for each in objects for buffer in each.buffers)])

    @abstractmethod
    def receive(self, pending: Sequence[memoryview]) -> int:
        """Receive into buffers, one after another; none is empty.

        Returns:
            how many bytes have arrived, perhaps fewer than there is room for; 0: the peer has closed the connection.
        """

    @abstractmethod
    def wait_readable(self, seconds: float) -> bool:
        """Wait for the next byte; False: it has not come in time, or never will."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether a small frame can be sent without waiting for the peer to read."""

    @abstractmethod
    def is_quiet(self) -> bool:
        """Whether the connection is open and nothing has arrived on it."""

    def delivery_rate(self, _known_after_bytes: int) -> float | None:
        """See :meth:`~entrepot_cluster.transport.links.Link.delivery_rate`; None where nothing measures it."""
        return None

    @abstractmethod
    def interrupt(self) -> None:
        """End the connection at once."""

    @abstractmethod
    def close_after_reading(self) -> None:
        """Close the connection so that the peer gets what was sent last; takes up to a second."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Idempotent."""


def drop_front(pending: list[bytes | memoryview] | list[memoryview], done: int) -> None:
    """Take the first ``done`` bytes off a list of buffers."""
    count = 0
    while count < len(pending) and done >= len(pending[count]):
        done -= len(pending[count])
        count += 1
    del pending[:count]
    if done:
        pending[0] = memoryview(pending[0])[done:]
