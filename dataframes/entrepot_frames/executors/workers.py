"""The interface of what an executor runs its ranks on."""

from __future__ import annotations

from abc import ABC, abstractmethod

from entrepot_frames.executors.messages import Died, RankSetup, Reply, Task


class Workers(ABC):
    """Processes that run the ranks of one executor. Used by the executor's thread."""

    @abstractmethod
    def start(self, setup: RankSetup) -> None:
        """Start a rank, or start it again after its death.

        Raises:
            TooFewWorkers: there is no place for it.
        """

    @abstractmethod
    def send(self, rank: int, task: Task) -> None:
        """Hand a task to a rank; if it is dead, :meth:`wait` says so."""

    @abstractmethod
    def wait(self, timeout: float) -> list[tuple[int, Reply | Died]]:
        """Return replies and deaths, as soon as there are any; empty after ``timeout`` seconds."""

    @abstractmethod
    def kill(self, rank: int, reason: str) -> None:
        """End a rank at once; :meth:`wait` reports its death, with this reason."""

    @abstractmethod
    def close(self) -> None:
        """End all ranks. Idempotent."""
