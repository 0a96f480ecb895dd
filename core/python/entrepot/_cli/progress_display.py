"""Progress of long work on standard error: bytes, objects and rate, in one line that is written over."""

from __future__ import annotations

import sys
import time

from entrepot.phrases import human_bytes

UPDATE_SECONDS = 0.2


class ProgressDisplay:
    """``with ProgressDisplay(enabled) as display``: shows what :meth:`show` is told, and ends the line at the end.

    Args:
        enabled: whether anything is shown; None: if standard error is a terminal.
    """

    def __init__(self, enabled: bool | None) -> None:
        self._enabled = sys.stderr.isatty() if enabled is None else enabled
        self._next_update = 0.0
        self._started = time.monotonic()
        self._line = ""

    def show(self, done_bytes: int, total_bytes: int, done_objects: int, total_objects: int, moved_bytes: int) -> None:
        """Show how far the work is, a few times a second at most.

        Args:
            done_bytes, total_bytes: of the payload.
            done_objects, total_objects: objects.
            moved_bytes: of ``done_bytes``, those that were in fact written or read; the rate is theirs.
        """
        if not self._enabled:
            return
        now = time.monotonic()
        share = 100 * done_bytes // max(1, total_bytes)
        rate = moved_bytes / max(1e-9, now - self._started)
        self._line = (
            f"\r{share:3d} %  {human_bytes(done_bytes)} of {human_bytes(total_bytes)}, "
            f"{done_objects} of {total_objects} objects, {human_bytes(int(rate))}/s   "
        )
        if now >= self._next_update:
            self._next_update = now + UPDATE_SECONDS
            self._write(self._line)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line:
            self._write(f"{self._line}\n")
