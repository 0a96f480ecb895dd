"""The end of a gateway's process: in a limited time, whatever its threads wait for.

running ──begin()──▶ ending ──everything is closed──▶ ended
                        └──END_SECONDS later: it leaves the cluster without that──▶ ended

A thread may wait for a store that stands still, for half a minute at a time, or for a peer that says that it is working
on a request. Nothing of that is worth waiting for: a gateway that is killed costs nothing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

END_SECONDS = 5.0  # leaving the cluster may take another five, and all of it should take ten
LATE = 3  # exit code

_log = logging.getLogger(__name__)


class TimelyExit:
    """Ends this process in time. :meth:`begin` may be called repeatedly, and in a signal handler.

    Args:
        leave: leaves the cluster; called if the end takes too long.
        drain: waits for the last lines of the log, for a limited time; called after that.
    """

    def __init__(self, leave: Callable[[], None], drain: Callable[[], None]) -> None:
        self._leave = leave
        self._drain = drain
        self._begun = False  # of the main thread, where signal handlers run too

    def begin(self) -> None:
        """The process should end by itself from now on; if it has not in five seconds, end it."""
        if self._begun:
            return
        self._begun = True
        watchdog = threading.Timer(END_SECONDS, self._end)
        watchdog.daemon = True
        watchdog.start()

    def _end(self) -> None:
        waiting = ", ".join(sorted(thread.name for thread in threading.enumerate() if not thread.daemon))
        _log.warning(
            "the gateway has not come to its end in %g s, and is ended: a store or a peer does not answer (%s)",
            END_SECONDS,
            waiting,
        )
        try:
            self._leave()
        finally:
            self._drain()
            os._exit(LATE)
