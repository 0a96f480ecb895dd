"""Copies that this gateway is sealing, until what they are copies of is recorded beside them.

not known ──sealing()──▶ unrecorded ──the block ends──▶ not known
                             └──wait() in the meantime: waits for that

The record names the generation of the copy, so it is written after the seal. Whoever lists or publishes the copy
between the two would take it for an object of its own, newer than the one that it is a copy of.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from entrepot.errors import StoreUnavailable

RECORD_SECONDS = 10.0  # the seal and the record each wait for room for four seconds


class UnrecordedCopies:
    """Which copies are sealed, or being sealed, without their record. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ids: Counter[bytes] = Counter()  # with how many fetches seal them; guarded by _changed

    @contextmanager
    def sealing(self, oids: Iterable[bytes]) -> Iterator[None]:
        """Seal copies within the block, and record their origins."""
        ids = list(oids)
        self.hold(ids)
        try:
            yield
        finally:
            self.release(ids)

    def hold(self, oids: Iterable[bytes]) -> None:
        """Note copies without their record, until :meth:`release`."""
        with self._changed:
            self._ids.update(oids)

    def release(self, oids: Iterable[bytes]) -> None:
        """The record of these is there, or they turned out to be no copies."""
        with self._changed:
            for oid in oids:
                self._ids[oid] -= 1
                if self._ids[oid] <= 0:
                    del self._ids[oid]
            self._changed.notify_all()

    def __contains__(self, oid: bytes) -> bool:
        """Whether the origin of what has this ID may be about to be recorded. If not, its record can be read."""
        with self._changed:
            return oid in self._ids

    def wait(self, oid: bytes, seconds: float = RECORD_SECONDS) -> None:
        """Wait until no copy under this ID is without its record.

        Raises:
            StoreUnavailable: that takes longer; the store does not take the record.
        """
        end = time.monotonic() + seconds
        with self._changed:
            while oid in self._ids:
                left = end - time.monotonic()
                if left <= 0:
                    raise StoreUnavailable(
                        f"object {oid.hex()} is a copy that is just being made here, and the store has not taken the "
                        f"record of where it comes from for {seconds:g} s: see 'entrepot status', and try again"
                    )
                self._changed.wait(left)
