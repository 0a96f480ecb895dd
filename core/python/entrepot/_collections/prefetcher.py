"""Prefetching of a collection's members during iteration, so that slow loads overlap with the consumer's work.

States of an iteration::

    no helper ──a get was slow──▶ with helper ──end, exception, or iterator dropped──▶ over
                                      └──fork: the child continues without a helper──▶ no helper

Reading a member that is in memory takes a microsecond, less than handing it from one thread to another. So an iteration
starts without a helper, and starts one once a get took long enough to have loaded something, or fetched something from
another host. The helper only pins
members; their values are made by the iterating thread. If the helper fails to get a member, for whatever reason, the
iterating thread gets it itself and raises the error if it persists.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from entrepot.errors import EntrepotError

SLOW_SECONDS = 0.0005
_WAIT_SECONDS = 30.0  # safety net for waits on the condition; normally each thread is notified by the other well before


class Prefetcher:
    """Helper thread that gets members in order, up to a limit of members and bytes ahead of the consumer.

    Args:
        get: pins the member at a position.
        positions: positions of the members, in order.
        start: index into ``positions`` of the first member that the helper may get.
        sizes: returns the size in bytes of the member at a position.
        max_members: maximum number of members ahead.
        max_bytes: maximum number of bytes ahead.
    """

    def __init__(
        self,
        get: Callable[[int], Any],
        positions: Sequence[int],
        start: int,
        sizes: Callable[[int], int],
        max_members: int,
        max_bytes: int,
    ) -> None:
        self._get = get
        self._positions = positions
        self._sizes = sizes
        self._max_members = max_members
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._ready: deque[tuple[int, Any]] = deque()  # guarded by _changed; (index, member or None)
        self._prefetched_bytes = 0  # guarded by _changed; bytes of the ready members and the one being fetched
        self._next = start  # guarded by _changed; index that the helper gets next
        self._stopped = False  # guarded by _changed
        self._thread = threading.Thread(target=self._run, name="entrepot-prefetch", daemon=True)
        self._thread.start()

    def take(self, index: int) -> Any:
        """Return the member of that index if the helper has it or is fetching it; None: the caller must get it."""
        if os.getpid() != self._pid:
            return None  # after a fork: the helper, and whoever held its lock, stayed in the parent
        with self._changed:
            while True:
                if self._ready and self._ready[0][0] == index:
                    _, member = self._ready.popleft()
                    self._prefetched_bytes -= self._sizes(self._positions[index])
                    self._changed.notify_all()
                    return member
                if self._next <= index or not self._thread.is_alive():
                    self._next = max(self._next, index + 1)
                    self._changed.notify_all()
                    return None
                self._changed.wait(_WAIT_SECONDS)

    def stop(self) -> None:
        """End the helper and release what it holds."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._stopped = True
            self._ready.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while (index := self._wait_for_capacity()) is not None:
            member = None
            try:
                member = self._get(self._positions[index])
            except EntrepotError:
                pass  # the consumer will get it itself, and see this error if it persists
            except BaseException:
                self._deliver(index, None)
                raise
            if not self._deliver(index, member):
                return

    def _wait_for_capacity(self) -> int | None:
        """Wait until another member may be fetched; return its index, counted as ahead. None: the helper must end."""
        with self._changed:
            while not self._stopped and self._next < len(self._positions):
                size = self._sizes(self._positions[self._next])
                if len(self._ready) < self._max_members and self._prefetched_bytes + size <= self._max_bytes:
                    self._prefetched_bytes += size
                    self._next += 1
                    return self._next - 1
                self._changed.wait(_WAIT_SECONDS)
        return None

    def _deliver(self, index: int, member: Any) -> bool:
        with self._changed:
            if not self._stopped:
                self._ready.append((index, member))
            self._changed.notify_all()
            return not self._stopped


def iterate_pinned(
    get: Callable[[int], Any],
    positions: Sequence[int],
    sizes: Callable[[int], int],
    *,
    max_members: int,
    max_bytes: Callable[[], int],
    is_here: Callable[[int], bool] = lambda _: True,
) -> Iterator[Any]:
    """Yield the pinned members at these positions, in order, prefetching some of them.

    Args:
        get: pins the member at a position; its errors are raised here.
        positions: positions of the members.
        sizes: returns the size in bytes of the member at a position.
        max_members: maximum number of members to prefetch; 0: none.
        max_bytes: returns the maximum number of bytes to prefetch; called only when needed.
        is_here: whether the member at a position is on this host.
    """
    prefetcher: Prefetcher | None = None
    try:
        for index, position in enumerate(positions):
            member = prefetcher.take(index) if prefetcher is not None else None
            if member is None:
                remaining = len(positions) - index - 1
                near = prefetcher is not None or is_here(position)
                began = time.monotonic()
                member = get(position)
                slow = not near or time.monotonic() - began > SLOW_SECONDS
                if slow and prefetcher is None and max_members > 0 and remaining > 1:
                    prefetcher = Prefetcher(get, positions, index + 1, sizes, max_members, max_bytes())
            holder = [member]
            del member
            yield holder.pop()
    finally:
        if prefetcher is not None:
            prefetcher.stop()
