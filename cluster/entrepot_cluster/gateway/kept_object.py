"""What is known of an object of which a session asks for copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from entrepot_cluster.gateway.replica_plan import Copies, Duty

if TYPE_CHECKING:
    from entrepot_cluster.directory.model import PlaceEntry

RECHECK_SECONDS = 30.0  # of what was complete: a copy may have been deleted
BACK_OFF_SECONDS = 5.0  # before a store that did not take a copy is asked again


@dataclass(slots=True)
class KeptObject:
    """An object of which copies are wanted.

    Attributes:
        entry: as it was published.
        wanted: how many stores are to have it.
        copies: as they were found last; None: not yet.
        checked_at: when that was.
        live: the instances that were live then.
        holders: instances that were seen to have a copy, while this store saw to the copies.
        refused: instances where the ID holds something else, and until when they are not asked again.
    """

    entry: PlaceEntry
    wanted: int
    copies: Copies | None = None
    checked_at: float = -RECHECK_SECONDS
    live: frozenset[str] = frozenset()
    holders: set[str] = field(default_factory=set)
    refused: dict[str, float] = field(default_factory=dict)

    def is_due(self, live: frozenset[str], now: float) -> bool:
        """Whether its copies are to be looked at."""
        copies = self.copies
        if copies is None or self.live != live or now - self.checked_at > RECHECK_SECONDS:
            return True
        is_short = copies.duty == Duty.KEEP and copies.missing > 0
        return copies.duty == Duty.TAKE_OVER or (is_short and now - self.checked_at > BACK_OFF_SECONDS)
