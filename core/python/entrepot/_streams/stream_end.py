"""What the two ends of a stream have in common: they belong to the process that opened them, until they are closed."""

from __future__ import annotations

import os

from entrepot.errors import InvalidArgument


def checked_number(number: int | None, pid: int, what: str) -> int:
    """Return the number of an end that this process may use.

    Args:
        number: the daemon's number of it; None: it was closed.
        pid: process that opened it.
        what: which end, for the error.

    Raises:
        InvalidArgument: it was closed, or opened before a fork.
    """
    if pid != os.getpid():
        raise InvalidArgument(
            f"this {what} was opened by process {pid}, before a fork: open another one in process {os.getpid()}"
        )
    if number is None:
        raise InvalidArgument(f"this {what} was closed: open another one")
    return number
