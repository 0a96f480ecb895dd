"""``evict``: dropping the least recently used objects that nobody holds.

The store is asked for its objects only now and then. In between, a heap has each object known by then with a time at
which it certainly had been used, at the latest when it was sealed; it may have been used again since. Whatever comes to
the top is looked at, and goes back with its true time if that is later. This yields the same order as looking at all
objects each time. The store does not know when values of 16 KiB or less were read: for these, the seal counts, and what
was found held is in use.
"""

from __future__ import annotations

import heapq
import json
import time
from typing import TYPE_CHECKING, Any

from entrepot._client.queries import iter_objects
from entrepot._codecs.plasma_objects import TREE
from entrepot.errors import ObjectLost, ObjectNotFound
from entrepot.plasma import notifications

if TYPE_CHECKING:
    from entrepot import _core

_NANOSECONDS = 1_000_000_000
# The store learns of several reads at once, some time after them: uses closer than this go by the order of the seals.
_RESOLUTION_NS = _NANOSECONDS // 20

_Use = tuple[int, int, bytes]
"""When an object was used, when it was sealed, both in ns since 1970, and its ID."""


class EvictionQueue:
    """Finds the objects to evict. Not thread-safe: its client locks it.

    Args:
        raw: the store.
        session: a session of it.
        address: the store's address; subscriptions there are told of what is dropped.
    """

    def __init__(self, raw: _core.Client, session: int, address: str) -> None:
        self._raw = raw
        self._session = session
        self._address = address
        self._heap: list[_Use] = []
        self._listed_until = 0  # objects sealed after this, in ns since 1970, may not be in the heap

    def evict(self, num_bytes: int) -> int:
        """Drop objects until at least so many bytes of data and metadata are gone; return how many."""
        evicted_bytes, is_fresh = 0, False
        held: list[_Use] = []
        try:
            while evicted_bytes < num_bytes:
                if not is_fresh and (not self._heap or self._heap[0][0] > self._listed_until):
                    self._list()
                    held.clear()
                    is_fresh = True
                    continue
                if not self._heap:
                    break
                earlier_use = heapq.heappop(self._heap)
                candidate = self._look(earlier_use[2])
                if candidate is None:
                    continue
                use, is_held, nbytes, generation = candidate
                if use > earlier_use and self._heap and use > self._heap[0]:
                    heapq.heappush(self._heap, use)
                elif is_held:
                    held.append((_rounded(time.time_ns()) + _RESOLUTION_NS, *use[1:]))  # in use now
                elif self._raw.delete([use[2]])[0]:
                    evicted_bytes += nbytes
                    notifications.deleted(self._address, use[2], generation)
        finally:
            for entry in held:
                heapq.heappush(self._heap, entry)
        return evicted_bytes

    def _list(self) -> None:
        now = time.time_ns()
        records = iter_objects(self._raw, self._session, all_sessions=True)
        sealed = ((record["sealed_unix_ns"], bytes.fromhex(record["id"])) for record in records)
        self._heap = [(_rounded(when), when, binary) for when, binary in sealed]
        heapq.heapify(self._heap)
        self._listed_until = now

    def _look(self, binary: bytes) -> tuple[_Use, bool, int, int] | None:
        """Return its last use, whether anybody holds it, bytes and generation; None: there is nothing here to evict."""
        try:
            tree, lengths, generation = self._raw.buffer_lengths(binary)
            if tree != TREE:
                return None
            info: dict[str, Any] = json.loads(self._raw.info(binary))
        except (ObjectNotFound, ObjectLost):
            return None
        if info["state"] != "sealed":  # on disk: it takes no memory
            return None
        sealed, eviction = int(info["sealed_unix_ns"]), info.get("eviction", {})
        last_use = sealed
        if eviction.get("was_read"):
            last_use = max(sealed, time.time_ns() - int(eviction["idle_seconds"] * _NANOSECONDS))
        is_held = bool(info["pins"] or info["user_pinned"])
        return (_rounded(last_use), sealed, binary), is_held, sum(lengths), generation


def _rounded(when: int) -> int:
    return when // _RESOLUTION_NS * _RESOLUTION_NS
