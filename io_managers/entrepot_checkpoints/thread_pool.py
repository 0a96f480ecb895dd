"""A small thread pool with a bounded queue; the first error aborts everything."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from entrepot.errors import StoreUnavailable

T = TypeVar("T")

# Object stores have high latency and serve many requests at once; few keep a disk busy, and the checksums need cores.
REMOTE_THREADS = 8
LOCAL_THREADS = 4
ERROR_POLL_SECONDS = 0.1  # interval of checks for a failed task; a finished task wakes a blocked submit at once


def thread_count(local: bool) -> int:
    """Number of threads to use for a target."""
    return min(LOCAL_THREADS, (os.cpu_count() or 1) + 2) if local else REMOTE_THREADS


class BoundedThreadPool:
    """Runs tasks; a context manager that waits for all of them on exit, even after an error.

    Args:
        threads: how many; with 0, a task runs where it is submitted, which is faster for one or two small ones.
        name: of the threads, for display.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name) if threads else None
        self._free_slots = threading.Semaphore(max(1, 2 * threads))
        self._lock = threading.Lock()
        self._error: BaseException | None = None  # guarded by _lock

    def submit(self, task: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run ``task(*arguments)`` in a thread; blocks while too many tasks are pending.

        Raises:
            Whatever an earlier task raised.
            StoreUnavailable: the interpreter is shutting down and starts no more threads.
        """
        while not self._free_slots.acquire(timeout=ERROR_POLL_SECONDS):
            self.raise_if_failed()
        try:
            self.raise_if_failed()
            future = self._start(task, *arguments)
        except BaseException:
            self._free_slots.release()
            raise
        future.add_done_callback(self._on_done)
        return future

    def _start(self, task: Callable[..., T], *arguments: Any) -> Future[T]:
        if self._pool is None:
            future: Future[T] = Future()
            try:
                future.set_result(task(*arguments))
            except Exception as error:
                future.set_exception(error)
            return future
        try:
            return self._pool.submit(task, *arguments)
        except RuntimeError as error:  # how the pool reports interpreter shutdown
            raise StoreUnavailable(f"this process is exiting and can no longer save or load: {error}") from error

    def raise_if_failed(self) -> None:
        """Raise the error of a failed task, if any."""
        with self._lock:
            error = self._error
        if error is not None:
            raise error

    def _on_done(self, future: Future[Any]) -> None:
        self._free_slots.release()
        if future.cancelled():
            return
        error = future.exception()
        if error is not None and not isinstance(error, CancelledError):
            with self._lock:
                self._error = self._error or error

    def __enter__(self) -> BoundedThreadPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        if kind is None:
            self.raise_if_failed()
