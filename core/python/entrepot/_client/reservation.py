"""Reservations: memory that a store promises for what a task is going to put. See ``Store.reserve``."""

from __future__ import annotations

from types import TracebackType
from typing import SupportsIndex

from entrepot import _core
from entrepot._client.arguments import MAX_REQUEST_BYTES, checked_integer, timeout_seconds
from entrepot._daemon.units import parse_size


def checked_size(size: SupportsIndex | str) -> int:
    """Return the bytes of a size to reserve: a number, or a text such as ``"2GiB"``.

    Raises:
        InvalidArgument: it is neither.
    """
    if isinstance(size, str):
        return 0 if size == "0" else min(parse_size(size), MAX_REQUEST_BYTES)
    return checked_integer("the size of a reservation in bytes", size)


class Reservation:
    """Memory that the store has promised to this process; a context manager that releases it.

    States::

        held ──release, end of the block, last reference dropped, end of the process, another store──▶ released

    Args:
        client: the store's client.
        size: how much to reserve, as for :func:`checked_size`.
        timeout: seconds to wait for it; None: no limit.

    Raises:
        StoreFull, InvalidArgument, VersionMismatch: as ``Store.reserve``.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> with store.reserve("8MiB", timeout=600) as reservation:  # waits until there is room
    ...     oid = store.put(bytes(1_000_000))
    ...     reservation.used >= 1_000_000
    True
    """

    __slots__ = ("_bytes", "_client", "_handle", "_used")

    def __init__(self, client: _core.Client, size: SupportsIndex | str, timeout: float | None) -> None:
        self._client = client
        self._bytes = checked_size(size)
        self._used = 0  # when last asked
        self._handle: int | None = client.reserve(self._bytes, timeout_seconds(timeout))

    @property
    def bytes(self) -> int:
        """How many bytes were reserved."""
        return self._bytes

    @property
    def used(self) -> int:
        """How many new bytes this process has stored under it so far; after its release, until then.

        What a value shares with objects that were stored before does not count, nor do values of 16 KiB or less, which
        are stored inline. If the process holds several reservations, each new byte counts for one: the latest that is
        not used up. After a restart of the daemon the count begins anew.

        Raises:
            StoreUnavailable: the daemon cannot be reached.
        """
        if self._handle is not None:
            self._note(self._client.reservation(self._handle))
        return self._used

    @property
    def held(self) -> bool:
        """Whether the store still counts it.

        Raises:
            StoreUnavailable: the daemon cannot be reached.
        """
        return self._handle is not None and self._note(self._client.reservation(self._handle))

    def release(self) -> None:
        """Give up what was reserved; stored values stay. Releasing twice is harmless, and so is a store that is gone.

        If the daemon does not answer within a second, it ends the reservation when it answers again.
        """
        handle, self._handle = self._handle, None
        if handle is not None:
            self._note(self._client.end_reservation(handle))

    def _note(self, state: tuple[int, int] | None) -> bool:
        if state is None:
            return False
        self._used = state[1]
        return True

    def __del__(self) -> None:
        if hasattr(self, "_handle"):  # it was granted
            self.release()

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
