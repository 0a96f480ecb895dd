"""Fetching members from other hosts before a reader asks for them, from the order in which it has asked so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entrepot import Collection

MEMBERS_AHEAD = 2


class FetchAhead:
    """Watches which members of a collection one reader reads, and starts fetching those that it will read next.

    Readers of a loader with several workers skip the members of the others: each reads in steps of the same width.
    Without a regular order, nothing is fetched ahead, because in a small store that would drive out what is needed.

    Args:
        collection: that is read.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._last: int | None = None
        self._step = 1

    def reading(self, member: int) -> None:
        """Note that a member is about to be read."""
        if self._last is None:
            regular = True  # most likely the beginning of a pass
        else:
            step = member - self._last
            regular, self._step = step > 0 and step == self._step, step
        self._last = member
        if regular:
            step = max(self._step, 1)
            following = range(member + step, member + step * (MEMBERS_AHEAD + 1), step)
            self._collection.fetch_ahead(following, max_members=MEMBERS_AHEAD)
