"""Ranks as actors on the workers of a Dask cluster, which go on with its other tasks beside them."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument

from entrepot_frames.errors import TooFewWorkers
from entrepot_frames.executors.actor_workers import CREATE_SECONDS, ActorWorkers, RankActor
from entrepot_frames.executors.messages import RankSetup, Reply, Task

if TYPE_CHECKING:
    from distributed import Client


class DaskRank(RankActor):
    """The actor, in a worker's process.

    A worker runs the methods of all its actors in one thread. A program waits for the other ranks, so two executors
    that share workers would wait for each other there: each rank has a thread of its own.

    Args:
        setup: of the rank.
    """

    def __init__(self, setup: RankSetup) -> None:
        from distributed import get_worker

        # The worker forgets an actor when the scheduler does, which is when the executor's client has gone.
        actors = get_worker().state.actors
        super().__init__(setup, is_wanted=lambda: self in actors.values())
        self._thread = ThreadPoolExecutor(1, "frames-rank")

    async def run_in_thread(self, task: Task) -> Reply:
        """As :meth:`run`, without keeping the worker's other actors from running."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.run, task)


@dataclass
class _Place:
    """Where a rank is: the worker's address, and its actor with the future that keeps it."""

    worker: str
    future: Any
    actor: Any


class DaskWorkers(ActorWorkers):
    """One actor on each of as many workers as there are ranks; those with the least to do are taken.

    Args:
        client: of the cluster.
        size: how many ranks there will be.

    Raises:
        TooFewWorkers: the cluster has fewer workers.
    """

    def __init__(self, client: Client, size: int) -> None:
        super().__init__()
        self._client = client
        self._size = size
        self._lost: set[str] = set()  # workers whose rank did not end when it was to
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
        self.places[setup.rank] = _Place(worker, future, actor)

    def call(self, place: _Place, task: Task) -> Reply:
        reply: Reply = place.actor.run_in_thread(task).result()
        return reply

    def reason(self, place: _Place, error: Exception) -> str:
        return f"worker {place.worker} is gone ({type(error).__name__}: {error})"

    def release(self, place: _Place) -> None:
        place.future.release()

    def kill(self, rank: int, reason: str) -> None:
        # Its worker may be at other people's tasks: the rank is left there, and its worker not used again.
        self._lost.add(self.places[rank].worker)
        super().kill(rank, reason)

    def _free(self) -> list[str]:
        """Addresses of workers without a rank, those with the least to do first."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        used = {place.worker for place in self.places.values()} | self._lost
        free = [address for address in workers if address not in used]
        return sorted(free, key=lambda address: (workers[address]["metrics"].get("executing", 0), address))
