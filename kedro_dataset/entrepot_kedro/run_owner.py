"""The process that runs a pipeline, as its worker processes know it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from entrepot.errors import EntrepotError

from entrepot_kedro.ended_runs import has_exited, process_mark


class RunEnded(EntrepotError, RuntimeError):
    """A worker process tried to save a value for a run whose own process has exited."""

    short_code = "E706"


@dataclass(frozen=True)
class RunOwner:
    """The process that made a dataset: that of the run, also in the dataset's copies in worker processes.

    Attributes:
        pid: its PID.
        mark: identifies it, see :func:`entrepot_kedro.ended_runs.process_mark`.
    """

    pid: int = field(default_factory=os.getpid)
    mark: dict[str, str] = field(default_factory=process_mark, compare=False, repr=False)

    @property
    def is_this_process(self) -> bool:
        """Whether it is this process, and not one that was forked from it or got the dataset as a pickle."""
        return self.pid == os.getpid()

    def has_exited(self) -> bool:
        """Whether it is known to have exited."""
        return has_exited(self.mark)

    def check_running(self, what: str, session: str) -> None:
        """Check that it is running still, before a worker process saves a value.

        Args:
            what: name of the value.
            session: where it would be saved.

        Raises:
            RunEnded: it has exited.
        """
        if not self.is_this_process and self.has_exited():
            raise RunEnded(
                f"{what} is not saved, because the process of its run, {self.pid}, has exited: another run may go on "
                f"in the session {session!r}, and this value would replace that run's own"
            )
