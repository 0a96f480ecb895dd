"""Getting members ahead of whoever iterates, so that what has to be loaded is there when it is asked for.

The life of a round::

    alone ──a get was slow──▶ with a helper ──the end, an exception, the iterator dropped──▶ over
                                    └──a fork: the child goes on alone──▶

A get of what is in memory takes a microsecond, less than handing it from one thread to another; so a round begins
without a helper and starts one when a get took long enough to have loaded something. The helper only pins: values are
made by the thread that asks for them. What the helper could not get, for whatever reason, the asking thread gets
itself, and has the error, if there still is one.
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
_WAIT_SECONDS = 30.0  # the helper's and the asker's look at each other; each wakes the other before that


class Ahead:
    """A helper thread that gets members in order, at most so many and so many bytes ahead of who takes them.

    Args:
        get: pins the member at a position.
        positions: which members, in order.
        begin: the number of the first of them that the helper may get.
        sizes: bytes of the member at a position.
        most: members ahead.
        most_bytes: bytes ahead.
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
        self._ready: deque[tuple[int, Any]] = deque()  # guarded by _changed; (which, member or None)
        self._ahead_bytes = 0  # guarded by _changed; of those ready and the one in work
        self._next = begin  # guarded by _changed; which one the helper gets next
        self._over = False  # guarded by _changed
        self._thread = threading.Thread(target=self._run, name="entrepot-prefetch", daemon=True)
        self._thread.start()

    def take(self, which: int) -> Any:
        """The member of that number, if the helper has it or is at it; None: get it yourself."""
        if os.getpid() != self._pid:
            return None  # the helper, and whoever held its lock, stayed in the parent
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
        """End the helper; what it holds is let go."""
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
                pass  # whoever asks for it gets it itself, with this error if it stays
            except BaseException:
                self._hand_over(which, None)
                raise
            if not self._hand_over(which, found):
                return

    def _wait_for_room(self) -> int | None:
        """The next one to get, counted as ahead; None: this is over."""
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
    """The pinned members at these positions, in order, some of them got ahead.

    Args:
        get: pins the member at a position; its errors are raised here.
        positions: which members.
        sizes: bytes of the member at a position.
        most: how many to get ahead; 0: none.
        most_bytes: the most bytes to get ahead; called when that is needed.
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
