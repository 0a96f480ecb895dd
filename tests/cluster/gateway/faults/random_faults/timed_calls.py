"""Calls of one worker: counted, timed, and watched for one that never returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from entrepot.errors import EntrepotError

from random_faults.report import Report

T = TypeVar("T")

# No call may take longer, whatever is wrong: a fetch gives up each place after ten seconds without a byte, and a
# daemon that is stopped is waited for.
MOST_SECONDS = 120.0
LATE_SECONDS = 45.0  # after a call's own timeout: for a stopped daemon, and a busy machine


class TimedCalls:
    """Makes a worker's calls. ``hangs`` may be called from any thread.

    Args:
        host: where the worker runs, for messages.
        report: counts the calls.
    """

    def __init__(self, host: str, report: Report) -> None:
        self._host = host
        self._report = report
        self._call: tuple[str, float, float] | None = None  # under way: what, since when, until when at most

    def make(self, what: str, call: Callable[[], T], timeout: float | None = None) -> T:
        """Make a call.

        Args:
            what: kind of call.
            call: makes it.
            timeout: the one that it has.
        """
        begin = time.monotonic()
        limit = MOST_SECONDS if timeout is None else timeout + LATE_SECONDS
        self._call = (what, begin, begin + limit)
        failure: BaseException | None = None
        try:
            return call()
        except BaseException as error:
            failure = error
            raise
        finally:
            self._call = None
            seconds = time.monotonic() - begin
            self._report.called(what, seconds, failure)
            if type(failure) is EntrepotError:
                self._report.breaks(f"{self._host}: {what} raised an error without a type: {failure}")
            if seconds > limit:
                self._report.breaks(f"{self._host}: {what} took {seconds:.0f} s, and {limit:g} s are allowed")
            failure = None  # its traceback refers to this frame

    def doing(self) -> str:
        """What is under way; empty: nothing."""
        call = self._call
        return (
            "" if call is None else f"{self._host}: {call[0]} has not returned for {time.monotonic() - call[1]:.0f} s"
        )

    def hangs(self) -> str:
        """What has been under way for too long; empty: nothing."""
        call = self._call
        return "" if call is None or time.monotonic() < call[2] else self.doing()
