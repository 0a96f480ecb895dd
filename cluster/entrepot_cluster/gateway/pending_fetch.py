"""One object that is being fetched, for all who wait for it.

under way ──set_result()──▶ done
"""

from __future__ import annotations

import threading

from entrepot.errors import EntrepotError
from entrepot.ids import ObjectID

Outcome = ObjectID | EntrepotError
"""The ID under which an object is here now, or why it is not."""


class PendingFetch:
    """The outcome of a fetch, which comes later. Thread-safe.

    A ``concurrent.futures.Future`` has a condition of its own, which takes longer to make than everything else that
    happens to a small object; these share the fetcher's.

    Args:
        ended: notified when any of the fetches that share it is done.
    """

    __slots__ = ("_ended", "_outcome")

    def __init__(self, ended: threading.Condition) -> None:
        self._ended = ended
        self._outcome: Outcome | None = None  # written once, by whoever fetches; with _ended held

    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._outcome is not None

    def set_result(self, outcome: Outcome) -> None:
        """End it."""
        with self._ended:
            self._outcome = outcome
            self._ended.notify_all()

    def result(self) -> Outcome:
        """Wait for the outcome; whoever fetches sets one in any case, and each of its waits has a time limit."""
        if self._outcome is None:
            with self._ended:
                self._ended.wait_for(self.done)
        assert self._outcome is not None
        return self._outcome
