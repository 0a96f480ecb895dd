"""Removes from the directory what no longer counts, a little at a time."""

from __future__ import annotations

import threading
import time

from entrepot_cluster.directory.backends.interface import Backend
from entrepot_cluster.directory.codec import (
    ENTRIES,
    NAMES,
    NUMBER_BYTES,
    PLACES,
    decode_name,
    decode_place,
    decode_session,
    number_key,
    number_of,
    record_key,
)
from entrepot_cluster.directory.errors import DirectoryDamaged
from entrepot_cluster.directory.instances import InstanceTable


class Sweep:
    """Goes through the entries in the order of their keys; see ``Directory.sweep``.

    Args:
        backend: the directory's server.
        table: knows the instances.
        lost_seconds: how long a lost instance is remembered.
    """

    def __init__(self, backend: Backend, table: InstanceTable, lost_seconds: float) -> None:
        self._backend = backend
        self._table = table
        self._lost_seconds = lost_seconds
        self._lock = threading.Lock()
        self._kind = 0  # index in ENTRIES; guarded by _lock
        self._after = b""  # the last key that was looked at; guarded by _lock

    def step(self, limit: int) -> bool:
        """Look at the next entries; returns whether these were the last."""
        with self._lock:
            kind = ENTRIES[self._kind]
            # The entries first: whoever wrote one of them was registered before, so the snapshot shows its number.
            since = time.monotonic()
            entries = self._backend.page(kind, self._after, limit)
            if not self._after and self._kind == 0:
                self._table.refresh()
                self._prune()
                self._backend.tidy()
            instances = self._table.resolve((number_of(entry.key) for entry in entries), since)
            kept = self._table.damaged_numbers()  # their instances may be live
            stale = []
            for entry in entries:
                number = number_of(entry.key)
                if len(entry.key) <= NUMBER_BYTES or number in kept:
                    continue
                if number not in instances or _is_before(entry.key, entry.value, instances[number][1]):
                    stale.append(entry.key)
            if stale:
                self._backend.delete(stale)
            self._after = entries[-1].key if entries else b""
            if len(entries) == limit:
                return False
            self._after = b""
            self._kind = (self._kind + 1) % len(ENTRIES)
            return self._kind == 0

    def _prune(self) -> None:
        """Remove instances that were lost long ago; their entries then belong to nobody."""
        lost = self._table.lost_records()
        if not lost:
            return
        now = self._backend.now()
        for number, (raw, record) in lost.items():
            since = record.instance.lost_since
            if since is not None and now - since > self._lost_seconds:
                key = record_key(number)
                # False: it has registered again.
                self._backend.swap({key: raw}, {key: None, number_key(record.instance.id): None})


def _is_before(key: bytes, value: bytes, first_epoch: int) -> bool:
    """Whether an entry is older than an epoch; what cannot be decoded is left for somebody to see."""
    decode = {PLACES: decode_place, NAMES: decode_name}.get(key[:1], decode_session)
    try:
        return decode(key, value)[1] < first_epoch
    except DirectoryDamaged:
        return False
