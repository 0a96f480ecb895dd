"""A few threads with a bounded number of tasks, the first error of which ends the whole."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from entrepot.errors import StoreUnavailable

T = TypeVar("T")

# Object stores answer slowly and take many requests at once; a disk is busy with few, and the checksums want cores.
REMOTE_THREADS = 8
LOCAL_THREADS = 4
WAIT_SECONDS = 0.1  # between looks at whether a task failed; a blocked submit is woken by a finished task at once


def thread_count(local: bool) -> int:
    """How many threads a target is written and read with."""
    return min(LOCAL_THREADS, (os.cpu_count() or 1) + 2) if local else REMOTE_THREADS


class Workers:
    """Runs tasks; a context manager that waits for all of them, whatever happened.

    Args:
        threads: how many; 0: a task runs where it is submitted, which is faster for one or two small ones.
        name: of the threads, for people.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name) if threads else None
        self._room = threading.Semaphore(max(1, 2 * threads))
        self._lock = threading.Lock()
        self._error: BaseException | None = None  # guarded by _lock

    def submit(self, task: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run ``task(*arguments)`` in a thread; waits while as many as may be are on their way.

        Raises:
            What an earlier task raised.
            StoreUnavailable: the interpreter is ending, and starts no threads any more.
        """
        while not self._room.acquire(timeout=WAIT_SECONDS):
            self.check()
        try:
            self.check()
            future = self._started(task, *arguments)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(self._done)
        return future

    def _started(self, task: Callable[..., T], *arguments: Any) -> Future[T]:
        if self._pool is None:
            done: Future[T] = Future()
            try:
                done.set_result(task(*arguments))
            except Exception as error:
                done.set_exception(error)
            return done
        try:
            return self._pool.submit(task, *arguments)
        except RuntimeError as error:  # the pool's own word for the interpreter's end
            raise StoreUnavailable(f"this process is ending, and cannot save or load any more: {error}") from error

    def check(self) -> None:
        """Raise what a task raised, if one did."""
        with self._lock:
            error = self._error
        if error is not None:
            raise error

    def _done(self, future: Future[Any]) -> None:
        self._room.release()
        if future.cancelled():
            return
        error = future.exception()
        if error is not None and not isinstance(error, CancelledError):
            with self._lock:
                self._error = self._error or error

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        if kind is None:
            self.check()
