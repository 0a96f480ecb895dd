"""``set_client_options``: a limit of what one client may have in the store."""

from __future__ import annotations

from collections.abc import Callable

from entrepot.plasma.errors import PlasmaStoreFull


class Quota:
    """Counts the bytes of the objects that a client created and that still exist. Not thread-safe: its client locks it.

    Args:
        name: the client's, for messages.
        limit: in bytes of data and metadata.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._sizes: dict[bytes, int] = {}  # by binary ID

    def charge(self, binary: bytes, nbytes: int, exists: Callable[[bytes], bool]) -> None:
        """Count an object that is about to be created; ``exists`` tells whether another one still does.

        Raises:
            PlasmaStoreFull: it would exceed the quota.
        """
        if sum(self._sizes.values()) + nbytes > self._limit:
            self._sizes = {other: size for other, size in self._sizes.items() if exists(other)}
            used = sum(self._sizes.values())
            if used + nbytes > self._limit:
                raise PlasmaStoreFull(
                    f"an object of {nbytes} bytes exceeds the quota of client {self._name!r}: {used} of {self._limit} "
                    "bytes are used by objects that it created: delete some, or raise it with set_client_options"
                )
        self._sizes[binary] = nbytes
