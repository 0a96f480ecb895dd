"""The words between a task that needs others to run again and the scheduler process that clears them.

A task has neither the database nor credentials of Airflow's public interface, and the interface that it does have
clears whole runs only. So it leaves a request among its own XComs; the clerk in the scheduler (``clerk.py``) does it
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

Instance = tuple[str, int]  # task ID and map index, within the run of the request


@dataclass(frozen=True)
class Request:
    """Task instances of the asking task's own run that have to run again.

    Attributes:
        tasks: which; none: the asking task only waits.
        rule: of the policy that wants it.
        id: of this request.
        hold: whether the asking task, which ends its attempt as a reschedule, is to be held until that end is known.
        after: task instances that have to be over before it runs again.
    """

    tasks: tuple[Instance, ...]
    rule: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    hold: bool = False
    after: tuple[Instance, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As the XCom has it."""
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
        """Read what :meth:`to_json` made.

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
    """What came of a request.

    Attributes:
        id: of the request; empty: it could not be read.
        cleared: task instances that were cleared now.
        waiting: those that had not ended, and run anyway.
        problem: why nothing was done; empty: it was.
        held: whether the clerk lets the asking task go on, and when.
    """

    id: str
    cleared: tuple[Instance, ...] = ()
    waiting: tuple[Instance, ...] = ()
    problem: str = ""
    held: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the XCom has it."""
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
        """Read what :meth:`to_json` made; None: it is something else."""
        try:
            cleared, waiting = _instances(said["cleared"]), _instances(said["waiting"])
            return cls(str(said["id"]), cleared, waiting, str(said["problem"]), bool(said.get("held")))
        except (KeyError, TypeError, ValueError):
            return None


def leave(row: Any, key: str, said: dict[str, Any], session: Session) -> None:
    """Leave something among the XComs of whoever asked; in the scheduler, which has the database.

    Args:
        row: the request in the database.
        key: of the XCom.
        said: its value.
        session: of the database.
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
    """Task instances, for people."""
    return ", ".join(task if index < 0 else f"{task}[{index}]" for task, index in instances) or "none"


def _instances(said: Any) -> tuple[Instance, ...]:
    return tuple((str(task), int(index)) for task, index in said)
