"""Ranks as actors on the workers of a Dask cluster, which go on with its other tasks beside them."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument

from entrepot_frames.errors import TooFewWorkers
from entrepot_frames.executors.messages import Died, RankSetup, Reply, Task
from entrepot_frames.executors.workers import Workers

if TYPE_CHECKING:
    from distributed import Client

CREATE_SECONDS = 60.0


class DaskRank:
    """The actor: one rank, in a worker's process.

    Args:
        setup: of the rank.
    """

    def __init__(self, setup: RankSetup) -> None:
        from distributed import get_worker

        from entrepot_frames.executors.rank_runtime import RankRuntime

        # The worker forgets an actor when the scheduler does, which is when the executor's client has gone.
        actors = get_worker().state.actors
        self._runtime = RankRuntime(setup, is_wanted=lambda: self in actors.values())
        self._host = socket.gethostname()

    def host(self) -> str:
        """Name of the worker's host."""
        return self._host

    def run(self, task: Task) -> Reply:
        """Run a task to its end."""
        return self._runtime.run(task)


@dataclass
class _Place:
    """Where a rank is: the worker's address, and its actor with the future that keeps it."""

    worker: str
    future: Any
    actor: Any


class DaskWorkers(Workers):
    """One actor on each of as many workers as there are ranks; those with the least to do are taken.

    Args:
        client: of the cluster.
        size: how many ranks there will be.

    Raises:
        TooFewWorkers: the cluster has fewer workers.
    """

    def __init__(self, client: Client, size: int) -> None:
        self._client = client
        self._size = size
        self._places: dict[int, _Place] = {}  # by rank
        self._lost: set[str] = set()  # workers whose rank did not end when it was to
        self._events: SimpleQueue[tuple[_Place, int, Reply | Died]] = SimpleQueue()
        if len(self._free()) < size:
            raise TooFewWorkers(
                f"the Dask cluster has {len(self._free())} workers, and {size} ranks need one each: start more "
                "workers, or use a lower parallelism="
            )

    def start(self, setup: RankSetup) -> None:
        free = self._free()
        if not free:
            raise TooFewWorkers(f"the Dask cluster has no free worker for rank {setup.rank}")
        worker = free[0]
        future: Any = self._client.submit(
            DaskRank, setup, actor=True, workers=[worker], allow_other_workers=False, pure=False
        )
        try:
            actor: Any = future.result(CREATE_SECONDS)
            host = actor.host().result(CREATE_SECONDS)
        except TimeoutError:
            future.release()
            raise TooFewWorkers(f"worker {worker} has not created rank {setup.rank} in {CREATE_SECONDS:g} s") from None
        if host != socket.gethostname():
            future.release()
            raise InvalidArgument(
                f"worker {worker} is on host {host}, and the executor's store on {socket.gethostname()}: all ranks "
                "have to be on the store's host"
            )
        self._places[setup.rank] = _Place(worker, future, actor)

    def send(self, rank: int, task: Task) -> None:
        place = self._places[rank]
        thread = threading.Thread(target=self._run, args=(place, rank, task), name=f"frames-rank-{rank}", daemon=True)
        thread.start()

    def wait(self, timeout: float) -> list[tuple[int, Reply | Died]]:
        try:
            place, rank, event = self._events.get(timeout=timeout)
        except Empty:
            return []
        if self._places.get(rank) is not place:
            return []  # of a rank that was given up
        if isinstance(event, Died):
            self._give_up(rank)
        return [(rank, event)]

    def kill(self, rank: int, reason: str) -> None:
        # Its worker may be at other people's tasks: the rank is left there, and its worker not used again.
        place = self._places[rank]
        self._lost.add(place.worker)
        self._events.put((place, rank, Died(reason)))

    def close(self) -> None:
        for rank in list(self._places):
            self._give_up(rank)

    def _run(self, place: _Place, rank: int, task: Task) -> None:
        try:
            event: Reply | Died = place.actor.run(task).result()
        except Exception as error:
            event = Died(f"worker {place.worker} is gone ({type(error).__name__}: {error})")
        self._events.put((place, rank, event))

    def _give_up(self, rank: int) -> None:
        self._places.pop(rank).future.release()

    def _free(self) -> list[str]:
        """Addresses of workers without a rank, those with the least to do first."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        used = {place.worker for place in self._places.values()} | self._lost
        free = [address for address in workers if address not in used]
        return sorted(free, key=lambda address: (workers[address]["metrics"].get("executing", 0), address))
