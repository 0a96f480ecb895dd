"""Ranks as actors of a Ray cluster, in a placement group of their own."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_frames.errors import TooFewWorkers
from entrepot_frames.executors.actor_workers import CREATE_SECONDS, ActorWorkers, RankActor
from entrepot_frames.executors.messages import RankSetup, Reply, Task


@dataclass
class _Place:
    """Where a rank is."""

    actor: Any


class RayWorkers(ActorWorkers):
    """One actor for each rank, each in a bundle of one placement group; Ray packs it on as few nodes as it can.

    If the program has not called ``ray.init()``, Ray does, by its own rules: it connects to the cluster that
    ``RAY_ADDRESS`` names or that runs on this host, or else starts one.

    Args:
        size: how many ranks there will be.
        threads: of Polars and Arrow in each rank, which is also the number of CPUs that it asks for.

    Raises:
        InvalidArgument: Ray is not installed.
        TooFewWorkers: the cluster has fewer CPUs, or others have not left enough of them within a minute.
    """

    def __init__(self, size: int, threads: int) -> None:
        try:
            import ray
            from ray.util.placement_group import placement_group, remove_placement_group
        except ImportError as error:
            raise InvalidArgument(
                f"on=\"ray\" requires Ray, which is not installed: pip install 'entrepot[frames-ray]' ({error})"
            ) from error
        super().__init__()
        self._threads = threads
        if not ray.is_initialized():
            ray.init()
        wanted = f"{size} ranks need {size * threads} CPUs (threads={threads} each)"
        available: float = ray.cluster_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
        if available < size * threads:
            raise TooFewWorkers(
                f"the Ray cluster has {available:g} CPUs, and {wanted}: add nodes, or use a lower parallelism= or "
                "threads="
            )
        self._remove_group = remove_placement_group
        self._group = placement_group([{"CPU": threads}] * size, strategy="PACK")
        if not self._group.wait(CREATE_SECONDS):
            self._remove_group(self._group)
            raise TooFewWorkers(
                f"{wanted}, which other programs on the Ray cluster have not left free in {CREATE_SECONDS:g} s"
            )

    def start(self, setup: RankSetup) -> None:
        import ray
        from ray.exceptions import GetTimeoutError
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        threads = str(self._threads)
        options: dict[str, Any] = {
            "num_cpus": self._threads,
            "runtime_env": {"env_vars": {"POLARS_MAX_THREADS": threads, "OMP_NUM_THREADS": threads}},
            "scheduling_strategy": PlacementGroupSchedulingStrategy(self._group, setup.rank),
        }
        # Ray ends it with the program that created it.
        place = _Place(ray.remote(RankActor).options(**options).remote(setup))
        try:
            host = ray.get(place.actor.host.remote(), timeout=CREATE_SECONDS)
        except GetTimeoutError:
            self.release(place)
            raise TooFewWorkers(f"Ray has not created rank {setup.rank} in {CREATE_SECONDS:g} s") from None
        if host != socket.gethostname():
            self.release(place)
            raise InvalidArgument(
                f"Ray has placed rank {setup.rank} on host {host}, and the executor's store is on "
                f"{socket.gethostname()}: all ranks have to be on the store's host"
            )
        self.places[setup.rank] = place

    def call(self, place: _Place, task: Task) -> Reply:
        import ray

        reply: Reply = ray.get(place.actor.run.remote(task))
        return reply

    def reason(self, place: _Place, error: Exception) -> str:
        lines = str(error).strip().splitlines()
        return f"its actor is gone ({type(error).__name__}: {lines[0] if lines else 'no reason given'})"

    def release(self, place: _Place) -> None:
        import ray

        if ray.is_initialized():  # otherwise its actors are gone
            ray.kill(place.actor)

    def close(self) -> None:
        import ray

        super().close()
        if ray.is_initialized():
            self._remove_group(self._group)
