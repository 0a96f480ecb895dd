"""What a rank does with its tasks, wherever it runs."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from entrepot import connect
from entrepot.errors import EntrepotError, ObjectNotFound

from entrepot_frames.communicators.store_communicator import StoreCommunicator
from entrepot_frames.env import Env
from entrepot_frames.errors import RankFailed
from entrepot_frames.executors.messages import RankSetup, Reply, Task

EXCHANGE_TTL = 3600.0  # of the session for exchanges, after its last use, should all processes be killed at once


class RankRuntime:
    """Runs the tasks of one rank, one after another; keeps the communicator between them.

    Args:
        setup: of the rank.
        is_wanted: whether the executor still exists; asked while a rank waits for others.
    """

    def __init__(self, setup: RankSetup, *, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self._setup = setup
        self._is_wanted = is_wanted
        self._store = connect(setup.address, scope=setup.scope, session=setup.session)
        self._exchange = self._store.session(setup.exchange, ttl=EXCHANGE_TTL)
        self._group = ""
        self._env: Env | None = None  # of _group
        self._kept: Any = None  # what "start" made

    def run(self, task: Task) -> Reply:
        """Run a task to its end; an exception of the program is in the reply."""
        import cloudpickle

        phase = ""
        try:
            env = self._env_of(task.group)
            function, arguments, keywords = cloudpickle.loads(task.payload)
            try:
                if task.action == "execute":
                    result = function(self._kept, *arguments, **keywords)
                else:
                    result = function(env, *arguments, **keywords)
            except BaseException:
                phase = env.communicator.phase
                raise
            if task.action == "start":
                self._kept, result = result, None
            return Reply(task.number, str(self._exchange.put(result)))
        except BaseException as error:
            if not isinstance(error, RankFailed):
                self._report(task.group, phase, error)
            return Reply(task.number, error=_pickled(error), phase=phase, traceback=traceback.format_exc())

    def leave(self) -> None:
        """The executor is gone: remove what ranks have exchanged."""
        try:
            self._store.remove_session(self._setup.exchange)
        except ObjectNotFound:
            return  # another rank was first

    def _env_of(self, group: str) -> Env:
        if self._env is None or self._group != group:
            setup = self._setup
            communicator = StoreCommunicator(
                self._exchange, group, setup.rank, setup.size, timeout=setup.timeout, is_wanted=self._is_wanted
            )
            self._env, self._group = Env(self._store, communicator), group
        else:
            self._env.communicator.settle()  # a task begins when the one before has ended on all ranks
        return self._env

    def _report(self, group: str, phase: str, error: BaseException) -> None:
        """Let the other ranks fail now, and not when they have waited long enough."""
        if self._env is None or self._group != group:
            return
        try:
            self._env.communicator.fail(self._setup.rank, f"{type(error).__name__}: {error}", phase)
        except EntrepotError:
            return  # the store is gone or full; the executor tells the others


def _pickled(error: BaseException) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(error)
        cloudpickle.loads(data)  # some exceptions can be pickled, but not loaded
    except Exception:
        data = cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data
