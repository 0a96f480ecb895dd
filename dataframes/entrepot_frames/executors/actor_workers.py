"""What ranks that are actors of a cluster have in common: one thread waits for each task's reply."""

from __future__ import annotations

import socket
import threading
from abc import abstractmethod
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from entrepot_frames.executors.messages import Died, RankSetup, Reply, Task
from entrepot_frames.executors.workers import Workers

CREATE_SECONDS = 60.0


class RankActor:
    """The actor: one rank, in whatever process the cluster runs it.

    Args:
        setup: of the rank.
        is_wanted: whether the executor still exists, where the cluster does not end the actor with it.
    """

    def __init__(self, setup: RankSetup, *, is_wanted: Callable[[], bool] = lambda: True) -> None:
        from entrepot_frames.executors.rank_runtime import RankRuntime

        self._runtime = RankRuntime(setup, is_wanted=is_wanted)
        self._host = socket.gethostname()

    def host(self) -> str:
        """Name of the actor's host."""
        return self._host

    def run(self, task: Task) -> Reply:
        """Run a task to its end."""
        return self._runtime.run(task)


class ActorWorkers(Workers):
    """Ranks in actors, of whatever cluster.

    Attributes:
        places: of the ranks, by rank: whatever the cluster needs to call and to release an actor. Of the executor's
            thread.
    """

    def __init__(self) -> None:
        self.places: dict[int, Any] = {}
        self._events: SimpleQueue[tuple[Any, int, Reply | Died]] = SimpleQueue()

    @abstractmethod
    def call(self, place: Any, task: Task) -> Reply:
        """Run a task on an actor, and wait for its end; from any thread. An exception means that the actor is dead."""

    @abstractmethod
    def reason(self, place: Any, error: Exception) -> str:
        """Why an actor is dead, in words, after :meth:`call` has raised."""

    @abstractmethod
    def release(self, place: Any) -> None:
        """Give up an actor."""

    def send(self, rank: int, task: Task) -> None:
        place = self.places[rank]
        thread = threading.Thread(target=self._run, args=(place, rank, task), name=f"frames-rank-{rank}", daemon=True)
        thread.start()

    def wait(self, timeout: float) -> list[tuple[int, Reply | Died]]:
        try:
            place, rank, event = self._events.get(timeout=timeout)
        except Empty:
            return []
        if self.places.get(rank) is not place:
            return []  # of a rank that was given up
        if isinstance(event, Died):
            self.release(self.places.pop(rank))
        return [(rank, event)]

    def kill(self, rank: int, reason: str) -> None:
        self._events.put((self.places[rank], rank, Died(reason)))

    def close(self) -> None:
        for rank in list(self.places):
            self.release(self.places.pop(rank))

    def _run(self, place: Any, rank: int, task: Task) -> None:
        try:
            event: Reply | Died = self.call(place, task)
        except Exception as error:
            event = Died(self.reason(place, error))
        self._events.put((place, rank, event))
