"""What all processes of a shuffle agree on, and the locality sets of its pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot._client.arguments import checked_integer
from entrepot._client.locality import pack_attributes
from entrepot.errors import InvalidArgument, StoreFull

if TYPE_CHECKING:
    from entrepot._services.store_access import ServiceStore

SHUFFLE, AGGREGATION = "shuffle", "aggregation"
_SETS = 64  # of a session, for all its shuffles: sets are never deleted, and a store has 65,536


@dataclass(frozen=True, slots=True)
class ShuffleLayout:
    """What all processes of a shuffle agree on.

    Attributes:
        partitions, writers: how many.
        framing: how records follow each other.
        record_bytes: the length of each; 0: they have their own.
        page_bytes: of a full page.
        kind: the service that it belongs to.
        plan: of an aggregation: its keys and aggregates, as plain data.
    """

    partitions: int
    writers: int
    framing: int
    record_bytes: int
    page_bytes: int
    kind: str
    plan: dict[str, Any] | None = None

    def set_handles(self, store: ServiceStore) -> list[int]:
        """Return the locality set of each partition: its pages are appended, and read in the order of their seals.

        Partial aggregates are read once, to be merged.
        """
        reading = "sequential" if self.kind == SHUFFLE else "once"
        changed, value = pack_attributes(None, None, {"reading": reading, "writing": "append"})
        handles: list[int] = []
        try:
            for number in range(min(self.partitions, _SETS)):
                handles.append(
                    store._raw().define_set(store._session_number, f"{self.kind}:{number}", 0, changed, value)
                )
        except StoreFull:  # too many sets: eviction then knows less, everything else works the same
            return []
        return [handles[number % len(handles)] for number in range(self.partitions)]


def checked_layout_number(subject: str, value: Any, maximum: int) -> int:
    """Check for an integer from 1 to ``maximum``."""
    number = checked_integer(subject, value, maximum)
    if not number:
        raise InvalidArgument(f"{subject} must be at least 1, but got 0")
    return number
