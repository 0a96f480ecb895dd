"""Parallel runner that survives the death of a node's process.

Kedro's own ParallelRunner has one pool: a worker that is killed takes down the pool and all nodes running in it. Here
each worker is a pool of its own, so a death affects one node, and the policy decides whether it is retried.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from typing import Any

from entrepot.errors import EntrepotError
from kedro.runner import Task

from entrepot_kedro.compat.runners import ExecutorRunner
from entrepot_kedro.policy import policy_registry


class NodeKilled(EntrepotError, RuntimeError):
    """The process in which a node ran was killed, and the policy does not retry the node."""

    short_code = "E705"


class EntrepotParallelRunner(ExecutorRunner):
    """ParallelRunner with a separate process for each running node, so that a killed one can be retried.

    ``kedro run --runner entrepot_kedro.EntrepotParallelRunner``. Without a policy, a killed node fails as in Kedro's.
    """

    def create_executor(self, max_workers: int) -> Executor:
        """Return an executor with a process for each running node."""
        configured_method = os.environ.get("KEDRO_MP_CONTEXT")
        context = multiprocessing.get_context(
            configured_method if configured_method in ("fork", "spawn", "forkserver") else None
        )
        return _ProcessPerNodeExecutor(max_workers, context)


class _ProcessPerNodeExecutor(ProcessPoolExecutor):
    """Executor of single-process pools. A ProcessPoolExecutor by type, because Kedro pickles tasks for that type only.

    Args:
        max_workers: number of processes.
        context: how they are started.
    """

    def __init__(self, max_workers: int, context: BaseContext) -> None:
        super().__init__(1, mp_context=context)
        self._context = context
        self._idle_workers: queue.SimpleQueue[ProcessPoolExecutor] = queue.SimpleQueue()
        self._all_workers: list[ProcessPoolExecutor] = []
        self._workers_lock = threading.Lock()
        for _ in range(max_workers):
            self._idle_workers.put(self._start_worker(context))
        self._threads = ThreadPoolExecutor(max_workers, thread_name_prefix="entrepot-nodes")

    def _start_worker(self, context: BaseContext) -> ProcessPoolExecutor:
        worker = ProcessPoolExecutor(1, mp_context=context)
        # Forks now, in the main thread and before any node runs: forking beside busy threads may inherit a held lock.
        worker.submit(os.getpid)
        with self._workers_lock:
            self._all_workers.append(worker)
        return worker

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a node in a process of its own."""
        return self._threads.submit(self._run_node, fn, args, kwargs)

    def _run_node(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        worker = self._idle_workers.get()
        number = 1
        try:
            while True:
                try:
                    return worker.submit(fn, *args, **kwargs).result()
                except BrokenProcessPool as error:
                    worker.shutdown(wait=False)
                    self._await_retry(fn, number, error)
                    # Other threads are busy by now, so the replacement is spawned, not forked.
                    forks = self._context.get_start_method() == "fork"
                    worker = self._start_worker(multiprocessing.get_context("spawn") if forks else self._context)
                number += 1
        finally:
            self._idle_workers.put(worker)

    def _await_retry(self, fn: Callable[..., Any], number: int, error: BrokenProcessPool) -> None:
        """Wait until the node may be retried; raise if the policy does not retry it."""
        binding = policy_registry.active()
        if binding is None or not isinstance(fn, Task):
            raise error
        decision = binding.task_failed(fn.node, number, "its process was killed")
        if not decision.again:
            raise NodeKilled(
                f"node {fn.node.name!r}: its process was killed, and it is not retried: {decision.reason} "
                f"(policy {decision.rule})"
            ) from error
        time.sleep(decision.delay)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        with self._workers_lock:
            workers, self._all_workers = self._all_workers, []
        for worker in workers:
            worker.shutdown(wait=wait, cancel_futures=cancel_futures)
        super().shutdown(wait=wait, cancel_futures=cancel_futures)
