"""Prefetching of a collection's members during iteration, so that slow loads overlap with the consumer's work.

States of an iteration::

    no helper ──a get was slow──▶ with helper ──end, exception, or iterator dropped──▶ over
                                      └──fork: the child continues without a helper──▶ no helper

Reading a member that is in memory takes a microsecond, less than handing it from one thread to another. So an iteration
starts without a helper, and starts one once a get took long enough to have loaded something. The helper only pins
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


class Ahead:
    """Helper thread that gets members in order, up to a limit of members and bytes ahead of the consumer.

    Args:
        get: pins the member at a position.
        positions: positions of the members, in order.
        begin: index into ``positions`` of the first member that the helper may get.
        sizes: returns the size in bytes of the member at a position.
        most: maximum number of members ahead.
        most_bytes: maximum number of bytes ahead.
    """

    def __init__(
        self,
        get: Callable[[int], Any],
        positions: Sequence[int],
        begin: int,
        sizes: Callable[[int], int],
        most: int,
        most_bytes: int,
    ) -> None:
        self._get = get
        self._positions = positions
        self._sizes = sizes
        self._most = most
        self._most_bytes = most_bytes
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._ready: deque[tuple[int, Any]] = deque()  # guarded by _changed; (index, member or None)
        self._ahead_bytes = 0  # guarded by _changed; bytes of the ready members and the one being fetched
        self._next = begin  # guarded by _changed; index that the helper gets next
        self._over = False  # guarded by _changed
        self._thread = threading.Thread(target=self._run, name="entrepot-prefetch", daemon=True)
        self._thread.start()

    def take(self, which: int) -> Any:
        """Return the member of that index if the helper has it or is fetching it; None: the caller must get it."""
        if os.getpid() != self._pid:
            return None  # after a fork: the helper, and whoever held its lock, stayed in the parent
        with self._changed:
            while True:
                if self._ready and self._ready[0][0] == which:
                    _, found = self._ready.popleft()
                    self._ahead_bytes -= self._sizes(self._positions[which])
                    self._changed.notify_all()
                    return found
                if self._next <= which or not self._thread.is_alive():
                    self._next = max(self._next, which + 1)
                    self._changed.notify_all()
                    return None
                self._changed.wait(_WAIT_SECONDS)

    def stop(self) -> None:
        """End the helper and release what it holds."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._over = True
            self._ready.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while (which := self._wait_for_room()) is not None:
            found = None
            try:
                found = self._get(self._positions[which])
            except EntrepotError:
                pass  # the consumer will get it itself, and see this error if it persists
            except BaseException:
                self._hand_over(which, None)
                raise
            if not self._hand_over(which, found):
                return

    def _wait_for_room(self) -> int | None:
        """Wait until another member may be fetched; return its index, counted as ahead. None: the helper must end."""
        with self._changed:
            while not self._over and self._next < len(self._positions):
                size = self._sizes(self._positions[self._next])
                if len(self._ready) < self._most and self._ahead_bytes + size <= self._most_bytes:
                    self._ahead_bytes += size
                    self._next += 1
                    return self._next - 1
                self._changed.wait(_WAIT_SECONDS)
        return None

    def _hand_over(self, which: int, found: Any) -> bool:
        with self._changed:
            if not self._over:
                self._ready.append((which, found))
            self._changed.notify_all()
            return not self._over


def members(
    get: Callable[[int], Any],
    positions: Sequence[int],
    sizes: Callable[[int], int],
    *,
    most: int,
    most_bytes: Callable[[], int],
) -> Iterator[Any]:
    """Yield the pinned members at these positions, in order, prefetching some of them.

    Args:
        get: pins the member at a position; its errors are raised here.
        positions: positions of the members.
        sizes: returns the size in bytes of the member at a position.
        most: maximum number of members to prefetch; 0: none.
        most_bytes: returns the maximum number of bytes to prefetch; called only when needed.
    """
    ahead: Ahead | None = None
    try:
        for which, position in enumerate(positions):
            found = ahead.take(which) if ahead is not None else None
            if found is None:
                began = time.monotonic()
                found = get(position)
                slow = time.monotonic() - began > SLOW_SECONDS
                left = len(positions) - which - 1
                if slow and ahead is None and most > 0 and left > 1:
                    ahead = Ahead(get, positions, which + 1, sizes, most, most_bytes())
            holder = [found]
            del found
            yield holder.pop()
    finally:
        if ahead is not None:
            ahead.stop()
