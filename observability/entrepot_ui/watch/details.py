"""What only a request for each object tells: which bytes it shares, and who pins it. Asked for the largest ones."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from entrepot.errors import ObjectLost, ObjectNotFound

from entrepot_ui.watch.rows import ObjectRow

if TYPE_CHECKING:
    import entrepot

MAX_DETAILED = 400  # of the objects whose payload is not in their metadata


@dataclass(frozen=True, slots=True)
class Details:
    """The largest objects in detail.

    Attributes:
        objects: each with its own, shared and referenced bytes, its parents, and its pins.
        pins: who pins which of them, with since when.
        complete: no object with payload of its own is missing.
    """

    objects: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    pins: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    complete: bool = True


class DetailReader:
    """Asks for details, and remembers since when each pin was seen. For one thread."""

    def __init__(self) -> None:
        self._looked = False
        self._since: dict[tuple[str, int, int, int], tuple[float, bool]] = {}  # time, and whether it was held before

    def read(self, store: entrepot.Store, rows: Iterable[ObjectRow]) -> Details:
        """Ask for the largest of these objects.

        Raises:
            StoreUnavailable, Timeout: the store does not answer.
        """
        candidates = [row for row in rows if row.blobs]
        largest = heapq.nlargest(MAX_DETAILED, candidates, key=attrgetter("nbytes"))
        now = time.time()
        objects: list[dict[str, Any]] = []
        pins: list[dict[str, Any]] = []
        since: dict[tuple[str, int, int, int], tuple[float, bool]] = {}
        for row in largest:
            try:
                info = store.info(row.id)
            except (ObjectNotFound, ObjectLost):
                continue  # gone in the meantime
            objects.append(
                {
                    "id": row.id,
                    "names": row.names,
                    "type": row.type,
                    "session": row.place,
                    "locality_set": row.locality_set,
                    "nbytes": row.nbytes,
                    "state": info.state,
                    "own_bytes": info.own_bytes,
                    "shared_bytes": info.shared_bytes,
                    "referenced_bytes": info.referenced_bytes,
                    "parents": [parent["id"] for parent in info.parents if parent["id"]],
                    "pins": info.pins,
                }
            )
            for holder in info.pinned_by:
                key = (row.id, info.generation, holder["pid"], holder["client"])
                since[key] = self._since.get(key, (now, not self._looked))
                first_seen, before = since[key]
                pins.append(
                    {
                        "id": row.id,
                        "names": row.names,
                        "type": row.type,
                        "nbytes": row.nbytes,
                        "pid": holder["pid"],
                        "label": holder["label"],
                        "pins": holder["pins"],
                        "since": first_seen,
                        "or_earlier": before,
                    }
                )
        self._since, self._looked = since, True
        return Details(objects, pins, complete=len(candidates) <= MAX_DETAILED)
