"""Runs programs on several ranks."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

from entrepot import connect
from entrepot.errors import EntrepotError, InvalidArgument
from entrepot.ids import ObjectID

from entrepot_frames.communicators.store_communicator import DEFAULT_TIMEOUT, report_failure
from entrepot_frames.errors import RankFailed
from entrepot_frames.executors.messages import Action, Died, RankSetup, Reply, Task
from entrepot_frames.executors.workers import Workers

if TYPE_CHECKING:
    from distributed import Client
    from entrepot import Store

# How long the other ranks have to notice that one has failed, before their processes are ended.
FAIL_SECONDS = 8.0
_TICK_SECONDS = 1.0


@dataclass(frozen=True)
class _Submitted:
    """A task in the executor's queue."""

    action: Action
    payload: bytes
    future: Future[list[Any]]


class Executor:
    """Runs the same function on several ranks at once, which exchange tables with each other.

        with Executor(parallelism=4) as executor:
            rows = executor.run(lambda env: env.read_parquet("orders/*.parquet").count_rows()).result()

    A task of the queue takes this way; the next one begins when it has ended on all ranks:

    ```
    queued ──▶ running on all ranks ──every rank replied──▶ done
                     │
                     └──a rank raised or died──▶ failing ──all others raised, or were ended──▶ failed
    ```

    A dead rank is started again before the next task; what ``start`` had made is gone on all ranks then.

    Args:
        parallelism: number of ranks. Default: the number of cores that this process may use.
        on: where they run: ``"processes"`` of this host; a ``distributed.Client``: workers of a Dask cluster, one
            for each rank; or ``"ray"``: actors of the Ray cluster that this program is connected to.
        store: the session that programs see (``env.store``); default: ``entrepot.connect()``. The executor opens a
            connection of its own.
        timeout: seconds that a rank waits for the others in one operation. Default: 300.
        threads: of Polars in each process; default: the cores divided by ``parallelism``, at least 1, and 1 on Ray,
            where each rank asks for as many CPUs. Dask's workers have as many as ``POLARS_MAX_THREADS`` says there.

    Raises:
        InvalidArgument: an impossible number, or an unknown ``on``.
        TooFewWorkers: there is no place for that many ranks.
        StoreUnavailable: there is no store.

    >>> import pyarrow as pa
    >>> def rows(env):
    ...     return env.from_local(pa.table({"rank": [env.communicator.rank]})).count_rows()
    >>> with Executor(parallelism=2) as executor:
    ...     executor.run(rows).result()  # of each rank, which know the rows of both
    [2, 2]
    """

    def __init__(
        self,
        parallelism: int | None = None,
        *,
        on: Literal["processes", "ray"] | Client = "processes",
        store: Store | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        threads: int | None = None,
    ) -> None:
        size = _cores() if parallelism is None else parallelism
        if size < 1:
            raise InvalidArgument(f"parallelism={size}: at least one rank is needed")
        if timeout <= 0:
            raise InvalidArgument(f"timeout={timeout:g}: a number of seconds above 0 is needed")
        if threads is not None and threads < 1:
            raise InvalidArgument(f"threads={threads}: each rank needs at least one thread")
        self._name = uuid.uuid4().hex[:12]
        self._store = _own_connection(store)
        self._exchange_name = f"frames-{self._name}"
        self._exchange = self._store.session(self._exchange_name, ttl=3600)
        self._setups = [
            RankSetup(
                rank,
                size,
                self._store.address,
                self._store.scope,
                self._store.session_name,
                self._exchange_name,
                timeout,
            )
            for rank in range(size)
        ]
        self._queue: SimpleQueue[_Submitted | None] = SimpleQueue()
        self._closed = False  # guarded by _closing
        self._closing = threading.Lock()
        self._number = 0  # of the last task; this and the next are of the executor's thread
        self._incarnation = 0  # counts failures: the communicator's group changes with it
        self._dead: set[int] = set()
        with ExitStack() as undo:
            undo.callback(self._store.close)
            undo.callback(self._remove_exchange)
            self._workers = _workers_on(on, size, threads)
            undo.callback(self._workers.close)
            for setup in self._setups:
                self._workers.start(setup)
            undo.pop_all()
        self._thread = threading.Thread(target=self._serve, name=f"frames-{self._name}", daemon=True)
        self._thread.start()

    @property
    def parallelism(self) -> int:
        """Number of ranks."""
        return len(self._setups)

    def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[list[Any]]:
        """Call ``function(env, *args, **kwargs)`` on every rank.

        Args:
            function: any function, also a lambda or one of a notebook; it is sent by cloudpickle.
            args, kwargs: for each rank the same.

        Returns:
            a future of the list of results, by rank. It raises what the function raised, with a note that names the
            rank, or ``RankFailed`` if a rank died.

        Raises:
            InvalidArgument: the executor is closed, or the function cannot be pickled.
        """
        return self._submit("run", function, args, kwargs)

    def start(self, cls: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[list[Any]]:
        """Create an object ``cls(env, *args, **kwargs)`` on every rank, for :meth:`execute`; it replaces a former one.

        Returns:
            a future of a list of None.
        """
        return self._submit("start", cls, args, kwargs)

    def execute(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[list[Any]]:
        """Call ``function(started, *args, **kwargs)`` on every rank, with the object that :meth:`start` has created.

        Returns:
            as :meth:`run`.
        """
        return self._submit("execute", function, args, kwargs)

    def close(self) -> None:
        """End the ranks, after the tasks that were submitted. Idempotent."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(
        self, action: Action, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[list[Any]]:
        import cloudpickle

        if not callable(function):
            raise InvalidArgument(f"a function is needed, and {function!r} cannot be called")
        try:
            payload = cloudpickle.dumps((function, args, kwargs))
        except Exception as error:
            raise InvalidArgument(f"{function!r} and its arguments cannot be sent to the ranks: {error}") from error
        future: Future[list[Any]] = Future()
        with self._closing:
            if self._closed:
                raise InvalidArgument("the executor is closed")
            self._queue.put(_Submitted(action, payload, future))
        return future

    # --- the executor's thread

    def _serve(self) -> None:
        while (task := self._queue.get()) is not None:
            if not task.future.set_running_or_notify_cancel():
                continue
            try:
                results = self._perform(task)
            except BaseException as error:
                task.future.set_exception(error)
            else:
                task.future.set_result(results)
        self._workers.close()
        self._remove_exchange()
        self._store.close()

    def _perform(self, submitted: _Submitted) -> list[Any]:
        for rank in sorted(self._dead):
            self._workers.start(self._setups[rank])
            self._dead.discard(rank)
        self._number += 1
        task = Task(self._number, f"{self._name}:{self._incarnation}", submitted.action, submitted.payload)
        for setup in self._setups:
            self._workers.send(setup.rank, task)
        replies, deaths = self._collect(task)
        failed = {rank: reply for rank, reply in replies.items() if reply.error}
        if failed or deaths:
            self._incarnation += 1
            self._discard(replies)
            raise _cause(failed, deaths)
        results = [ObjectID(replies[rank].result) for rank in range(self.parallelism)]
        values = self._exchange.get_many(results)
        self._discard(replies)
        return values

    def _collect(self, task: Task) -> tuple[dict[int, Reply], dict[int, Died]]:
        """Wait until the task has ended on every rank."""
        replies: dict[int, Reply] = {}
        deaths: dict[int, Died] = {}
        failing_since: float | None = None
        while len(replies) + len(deaths) < self.parallelism:
            for rank, event in self._workers.wait(_TICK_SECONDS):
                if isinstance(event, Died):
                    self._dead.add(rank)
                    deaths[rank] = event
                    self._report(task.group, rank, event.reason)
                elif event.number == task.number:
                    replies[rank] = event
                if isinstance(event, Died) or event.error:
                    failing_since = failing_since or time.monotonic()
            if failing_since is not None and time.monotonic() - failing_since > FAIL_SECONDS:
                for rank in set(range(self.parallelism)) - replies.keys() - deaths.keys():
                    self._workers.kill(rank, "it was ended, as it did not react to another rank's failure in time")
        return replies, deaths

    def _report(self, group: str, rank: int, reason: str) -> None:
        try:
            report_failure(self._exchange, group, rank, "", reason)
        except EntrepotError:
            return  # without a store, the other ranks fail by themselves

    def _discard(self, replies: dict[int, Reply]) -> None:
        for reply in replies.values():
            if reply.result:
                self._exchange.delete(reply.result)

    def _remove_exchange(self) -> None:
        try:
            self._store.remove_session(self._exchange_name)
        except EntrepotError:
            return  # the session has gone with its store; otherwise it expires


def _own_connection(store: Store | None) -> Store:
    if store is None:
        return connect()
    return connect(store.address, scope=store.scope, session=store.session_name)


def _workers_on(on: Any, size: int, threads: int | None) -> Workers:
    if on == "processes":
        from entrepot_frames.executors.processes import ProcessWorkers

        return ProcessWorkers(threads or max(1, _cores() // size))
    if on == "ray":
        from entrepot_frames.executors.ray_workers import RayWorkers

        return RayWorkers(size, threads or 1)
    if type(on).__module__.partition(".")[0] == "distributed":
        from entrepot_frames.executors.dask_workers import DaskWorkers

        return DaskWorkers(on, size)
    raise InvalidArgument(f'on={on!r} is unknown: use "processes", "ray" or a distributed.Client')


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _cause(failed: dict[int, Reply], deaths: dict[int, Died]) -> BaseException:
    """The error to raise: of a rank that died, else the first that raised by itself, not because another had failed."""
    import cloudpickle

    errors = {rank: cloudpickle.loads(reply.error) for rank, reply in sorted(failed.items())}
    if deaths:
        rank, died = min(deaths.items())
        phases = [reply.phase for reply in failed.values() if reply.phase]
        return RankFailed(rank, phases[0] if phases else "", died.reason)
    own = {rank: error for rank, error in errors.items() if not isinstance(error, RankFailed)}
    rank, error = min((own or errors).items(), key=lambda item: item[0])
    reply = failed[rank]
    during = f" in {reply.phase}" if reply.phase else ""
    if hasattr(error, "add_note"):  # Python 3.11 and later
        error.add_note(f"on rank {rank}{during}:\n{reply.traceback}")
    assert isinstance(error, BaseException)
    return error
