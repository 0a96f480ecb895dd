"""Locks between processes that wait for a limited time: their holder may be stopped, and then keeps them."""

from __future__ import annotations

import fcntl
import time

_RETRY_SECONDS = 0.002


def lock_within(descriptor: int, seconds: float) -> bool:
    """Lock an open file exclusively, as by ``flock``, and say whether that succeeded in time.

    The kernel releases the lock when the last descriptor of this open file is closed, so also when the process dies.

    Args:
        descriptor: of the file; two descriptors from separate calls of ``open`` exclude each other, in one process too.
        seconds: how long to wait for its holder; 0: try once.

    Raises:
        OSError: the file cannot be locked.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_RETRY_SECONDS)
