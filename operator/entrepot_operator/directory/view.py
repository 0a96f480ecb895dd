"""A copy of a directory's resources, from which look-ups are answered: what informers read and follow, indexed."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import Any

from entrepot_cluster.directory.backends.interface import Entry
from entrepot_cluster.directory.codec import (
    NAMES,
    NUMBER_BYTES,
    PLACES,
    RECORDS,
    SESSIONS,
    successor,
)

from entrepot_operator.directory.leases import HeldLease, parse_lease
from entrepot_operator.directory.shards import Head, Shard, head_name, is_entry, parse_head, parse_shard
from entrepot_operator.kubernetes.informer import Resource

_RECORD = len(RECORDS) + NUMBER_BYTES
_WHOLE = {PLACES: 21, SESSIONS: 9}  # length of a key without its number
_END_OF_NAME = b"\x00\x01"
_NAMES_PREFIX = 9


class ShardView:
    """All shards of a directory, with an index of their entries; the sink of an informer. For any number of threads.

    Args:
        cluster: the cluster's name.
        changed: notified of each change; its lock guards all fields.
    """

    def __init__(self, cluster: str, changed: threading.Condition) -> None:
        self._cluster = cluster
        self._changed = changed
        # All guarded by _changed.
        self._head: Head | None = None
        self._read = False  # whether everything was read
        self._control: Shard | None = None
        self._shards: dict[str, Shard] = {}  # of instances
        self._by_number: dict[int, dict[int, Shard]] = {}
        self._holders: dict[bytes, tuple[Shard, ...]] = {}  # by key without its number
        self._sorted: list[bytes] = []  # the keys of _holders in order, but for what _added and _removed say
        self._added: list[bytes] = []
        self._removed = False  # whether keys in _sorted or _added have been removed since

    # --- from the informer

    def put(self, resources: Iterable[Resource]) -> None:
        """See the informer's ``Sink``."""
        head: Head | None = None
        shards: dict[str, Shard] = {}
        for resource in resources:
            if resource["metadata"]["name"] == head_name(self._cluster):
                head = parse_head(resource)
            elif (shard := parse_shard(self._cluster, resource)) is not None:
                shards[shard.name] = shard
        with self._changed:
            self._control = None
            for shard in list(self._shards.values()):
                if shard.name not in shards:
                    self._remove(shard)
            for shard in shards.values():
                self._store(shard)
            self._head = head
            self._read = True
            self._changed.notify_all()

    def change(self, resource: Resource, *, gone: bool) -> None:
        """See the informer's ``Sink``."""
        if resource["metadata"]["name"] == head_name(self._cluster):
            head = None if gone else parse_head(resource)
            with self._changed:
                self._head = head
                self._changed.notify_all()
            return
        shard = parse_shard(self._cluster, resource)
        if shard is None:
            return
        with self._changed:
            if not gone:
                self._store(shard)
            elif shard.number is None:
                self._control = None
            elif shard.name in self._shards:
                self._remove(self._shards[shard.name])
            self._changed.notify_all()

    # --- for readers

    def reached(self, head: Head) -> bool:
        """Whether it has seen everything up to a head that was read from the server."""
        with self._changed:
            mine = self._head
            return self._read and mine is not None and mine.uid == head.uid and mine.version >= head.version

    def head(self) -> Head | None:
        """The head as it was seen last."""
        with self._changed:
            return self._head

    def invalidate(self) -> None:
        """What was seen is wrong: nothing is reached until everything was read again."""
        with self._changed:
            self._read = False

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition on this view holds; False: it did not in time."""
        end = time.monotonic() + seconds
        with self._changed:
            while not condition():
                left = end - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return condition()
        return True

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        with self._changed:
            if not is_entry(key):
                return None if self._control is None else self._control.entries.get(key)
            prefix, number = key[:-NUMBER_BYTES], int.from_bytes(key[-NUMBER_BYTES:], "big")
            shard = _latest(each for each in self._holders.get(prefix, ()) if each.number == number)
            return None if shard is None else shard.entries[prefix]

    def with_prefix(self, prefix: bytes) -> list[Entry]:
        """The entries whose keys begin with a prefix, in their order."""
        with self._changed:
            if _is_whole(prefix):
                return self._entries_of(prefix)
            return list(self._scan(prefix, prefix))

    def page(self, prefix: bytes, after: bytes, limit: int) -> list[Entry]:
        """Up to ``limit`` entries after a key, whose keys begin with a prefix, in their order."""
        with self._changed:
            scan = self._scan(prefix, after + b"\x00" if after else prefix)
            return list(islice(scan, limit))

    def control(self) -> Shard | None:
        """The control shard."""
        with self._changed:
            return self._control

    def version_of(self, name: str) -> int:
        """The version of a shard; 0: there is none."""
        with self._changed:
            shard = self._shards.get(name)
            if shard is None and self._control is not None and self._control.name == name:
                shard = self._control
            return 0 if shard is None else shard.version

    def shards_of(self, number: int) -> list[Shard]:
        """An instance's shards, by their index."""
        with self._changed:
            return [shard for _, shard in sorted(self._by_number.get(number, {}).items())]

    def records(self) -> dict[int, bytes]:
        """The instances' records by number."""
        with self._changed:
            entries = {} if self._control is None else self._control.entries
        return {
            int.from_bytes(key[len(RECORDS) :], "big"): value
            for key, value in entries.items()
            if key.startswith(RECORDS) and len(key) == _RECORD
        }

    def counts(self) -> tuple[int, int]:
        """How many shards of instances there are, and how many keys without numbers."""
        with self._changed:
            return len(self._shards), len(self._holders)

    # --- with _changed held

    def _store(self, shard: Shard) -> None:
        if shard.number is None:
            self._control = shard
            return
        before = self._shards.get(shard.name)
        if before is not None and (before.uid, before.version) == (shard.uid, shard.version):
            return
        self._shards[shard.name] = shard
        self._by_number.setdefault(shard.number, {})[shard.index] = shard
        alone = (shard,)  # one tuple for all entries that no other shard has
        for prefix in shard.entries:
            holders = self._holders.get(prefix)
            if holders is None:
                self._holders[prefix] = alone
                self._added.append(prefix)
            elif len(holders) == 1 and holders[0] is before:
                self._holders[prefix] = alone
            else:
                self._holders[prefix] = (*(each for each in holders if each is not before), shard)
        if before is not None:
            self._forget(before, [prefix for prefix in before.entries if prefix not in shard.entries])

    def _remove(self, shard: Shard) -> None:
        assert shard.number is not None
        del self._shards[shard.name]
        of_instance = self._by_number[shard.number]
        del of_instance[shard.index]
        if not of_instance:
            del self._by_number[shard.number]
        self._forget(shard, shard.entries)

    def _forget(self, shard: Shard, prefixes: Iterable[bytes]) -> None:
        for prefix in prefixes:
            others = tuple(each for each in self._holders[prefix] if each is not shard)
            if others:
                self._holders[prefix] = others
            else:
                del self._holders[prefix]
                self._removed = True

    def _entries_of(self, prefix: bytes) -> list[Entry]:
        holders = self._holders.get(prefix, ())
        entries = []
        for number in sorted({shard.number for shard in holders if shard.number is not None}):
            shard = _latest(each for each in holders if each.number == number)
            if shard is not None:
                entries.append(Entry(prefix + number.to_bytes(NUMBER_BYTES, "big"), shard.entries[prefix]))
        return entries

    def _sort(self) -> None:
        """Bring the order up to date; most of it is sorted already, which makes this quick."""
        if self._added:
            self._sorted += self._added
            self._added = []
            self._sorted.sort()
        if self._removed:
            self._sorted = [key for key, _ in groupby(self._sorted) if key in self._holders]
            self._removed = False

    def _scan(self, prefix: bytes, begin: bytes) -> Iterator[Entry]:
        if prefix[:1] not in (PLACES, NAMES, SESSIONS):
            entries = {} if self._control is None else self._control.entries
            for key in sorted(key for key in entries if key.startswith(prefix) and key >= begin):
                yield Entry(key, entries[key])
            return
        self._sort()
        # The numbers after them can change the order of keys only among those that begin with each other's bytes, of
        # which there are none, except for garbage.
        first = max(0, bisect_right(self._sorted, begin[: max(len(prefix), len(begin) - NUMBER_BYTES)]) - 1)
        last = bisect_left(self._sorted, successor(prefix))
        for place in range(first, last):
            whole = self._sorted[place]
            for entry in self._entries_of(whole):
                if entry.key >= begin and entry.key.startswith(prefix):
                    yield entry


class LeaseView:
    """The leases of a directory's instances; the sink of an informer. For any number of threads.

    Args:
        cluster: the cluster's name.
        changed: notified of each change; its lock guards all fields.
    """

    def __init__(self, cluster: str, changed: threading.Condition) -> None:
        self._cluster = cluster
        self._changed = changed
        self._leases: dict[int, HeldLease] = {}  # guarded by _changed

    def put(self, resources: Iterable[Resource]) -> None:
        """See the informer's ``Sink``."""
        leases = {lease.number: lease for lease in self.parsed(resources)}
        with self._changed:
            self._leases = leases
            self._changed.notify_all()

    def change(self, resource: Resource, *, gone: bool) -> None:
        """See the informer's ``Sink``."""
        lease = parse_lease(self._cluster, resource)
        if lease is None:
            return
        with self._changed:
            if gone:
                self._leases.pop(lease.number, None)
            else:
                self._leases[lease.number] = lease
            self._changed.notify_all()

    def parsed(self, resources: Iterable[Any]) -> Iterator[HeldLease]:
        """Parse leases, and leave out what is none."""
        for resource in resources:
            lease = parse_lease(self._cluster, resource)
            if lease is not None:
                yield lease

    def live(self, now: float) -> dict[int, HeldLease]:
        """Those that are valid at a time, by number."""
        with self._changed:
            return {number: lease for number, lease in self._leases.items() if lease.valid(now)}

    def next_end(self, now: float) -> float:
        """Seconds until the next one of those ends; infinite if there are none."""
        with self._changed:
            ends = [lease.renewed + lease.seconds - now for lease in self._leases.values() if lease.valid(now)]
        return min(ends, default=float("inf"))


def _latest(shards: Iterable[Shard]) -> Shard | None:
    return max(shards, key=lambda shard: (shard.term, shard.index), default=None)


def _is_whole(prefix: bytes) -> bool:
    """Whether a prefix is a key of an entry without its number."""
    if prefix[:1] == NAMES:
        return len(prefix) > _NAMES_PREFIX and prefix.endswith(_END_OF_NAME)
    return len(prefix) == _WHOLE.get(prefix[:1])
