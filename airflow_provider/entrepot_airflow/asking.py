"""Messages for requesting upstream reruns from the scheduler.

A task has neither the database nor credentials for Airflow's public API, and the interface that it does have can only
clear whole runs. So it leaves a request among its own XComs; the clerk in the scheduler (``clerk.py``) carries it out
and leaves an answer there.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

REQUEST = "entrepot.rerun"
ANSWER = "entrepot.rerun_answer"
HELD = "entrepot.held"  # the clerk's own note about a reader whose attempt ends as a reschedule
VERSION = 1

Instance = tuple[str, int]  # task ID and map index, within the request's run


@dataclass(frozen=True)
class Request:
    """Request to rerun task instances of the requesting task's own run.

    Attributes:
        tasks: the task instances; empty: the requesting task only waits.
        rule: the policy rule that requires it.
        id: ID of this request.
        hold: whether to hold the requesting task, whose attempt ends as a reschedule, until that end is recorded.
        after: task instances that must have finished before it runs again.
    """

    tasks: tuple[Instance, ...]
    rule: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    hold: bool = False
    after: tuple[Instance, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Convert to the value of the XCom."""
        return {
            "v": VERSION,
            "id": self.id,
            "rule": self.rule,
            "tasks": [list(one) for one in self.tasks],
            "hold": self.hold,
            "after": [list(one) for one in self.after],
        }

    @classmethod
    def from_json(cls, said: Any) -> Request:
        """Parse what :meth:`to_json` returned.

        Raises:
            ValueError: it is something else, or of a newer version.
        """
        try:
            if said["v"] > VERSION:
                raise ValueError(f"version {said['v']}, and this installation knows up to {VERSION}")
            tasks, after = _instances(said["tasks"]), _instances(said.get("after", ()))
            return cls(tasks, str(said["rule"]), str(said["id"]), bool(said.get("hold")), after)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"no request to clear tasks: {error}") from error


@dataclass(frozen=True)
class Answer:
    """Outcome of a request.

    Attributes:
        id: ID of the request; empty: it could not be read.
        cleared: task instances that were cleared now.
        waiting: those that had not finished, and so run anyway.
        problem: why nothing was done; empty on success.
        held: whether the clerk will release the requesting task when it may run again.
    """

    id: str
    cleared: tuple[Instance, ...] = ()
    waiting: tuple[Instance, ...] = ()
    problem: str = ""
    held: bool = False

    def to_json(self) -> dict[str, Any]:
        """Convert to the value of the XCom."""
        return {
            "v": VERSION,
            "id": self.id,
            "cleared": [list(one) for one in self.cleared],
            "waiting": [list(one) for one in self.waiting],
            "problem": self.problem,
            "held": self.held,
        }

    @classmethod
    def from_json(cls, said: Any) -> Answer | None:
        """Parse what :meth:`to_json` returned; None: it is something else."""
        try:
            cleared, waiting = _instances(said["cleared"]), _instances(said["waiting"])
            return cls(str(said["id"]), cleared, waiting, str(said["problem"]), bool(said.get("held")))
        except (KeyError, TypeError, ValueError):
            return None


def leave(row: Any, key: str, said: dict[str, Any], session: Session) -> None:
    """Leave a message among the requesting task's XComs; runs in the scheduler, which has the database.

    Args:
        row: the request in the database.
        key: key of the XCom.
        said: its value.
        session: database session.
    """
    from airflow.models.xcom import XComModel

    XComModel.set(
        key,
        said,
        dag_id=row.dag_id,
        task_id=row.task_id,
        run_id=row.run_id,
        map_index=row.map_index,
        serialize=False,
        session=session,
    )


def in_words(instances: Sequence[Instance]) -> str:
    """Format task instances for people."""
    return ", ".join(task if index < 0 else f"{task}[{index}]" for task, index in instances) or "none"


def _instances(said: Any) -> tuple[Instance, ...]:
    return tuple((str(task), int(index)) for task, index in said)
