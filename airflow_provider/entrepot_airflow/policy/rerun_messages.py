"""Messages for requesting upstream reruns from the scheduler.

A task has neither the database nor credentials for Airflow's public API, and the interface that it does have can only
clear whole runs. So it leaves a request among its own XComs; the rerun service in the scheduler (``rerun_service.py``)
carries it out and leaves an answer there.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from entrepot_airflow.compat.task_instances import Instance as Instance

REQUEST_KEY = "entrepot.rerun"
ANSWER_KEY = "entrepot.rerun_answer"
HELD_KEY = "entrepot.held"  # the rerun service's own note about a reader whose attempt ends as a reschedule
VERSION = 1


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
            "tasks": [list(instance) for instance in self.tasks],
            "hold": self.hold,
            "after": [list(instance) for instance in self.after],
        }

    @classmethod
    def from_json(cls, data: Any) -> Request:
        """Parse what :meth:`to_json` returned.

        Raises:
            ValueError: it is something else, or of a newer version.
        """
        try:
            if data["v"] > VERSION:
                raise ValueError(f"version {data['v']}; this installation supports versions up to {VERSION}")
            tasks, after = _instances(data["tasks"]), _instances(data.get("after", ()))
            return cls(tasks, str(data["rule"]), str(data["id"]), bool(data.get("hold")), after)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"invalid rerun request: {error}") from error


@dataclass(frozen=True)
class Answer:
    """Outcome of a request.

    Attributes:
        id: ID of the request; empty: it could not be read.
        cleared: task instances that were cleared now.
        waiting: those that had not finished, and so run anyway.
        problem: why nothing was done; empty on success.
        held: whether the rerun service will release the requesting task when it may run again.
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
            "cleared": [list(instance) for instance in self.cleared],
            "waiting": [list(instance) for instance in self.waiting],
            "problem": self.problem,
            "held": self.held,
        }

    @classmethod
    def from_json(cls, data: Any) -> Answer | None:
        """Parse what :meth:`to_json` returned; None: it is something else."""
        try:
            cleared, waiting = _instances(data["cleared"]), _instances(data["waiting"])
            return cls(str(data["id"]), cleared, waiting, str(data["problem"]), bool(data.get("held")))
        except (KeyError, TypeError, ValueError):
            return None


def format_instances(instances: Sequence[Instance]) -> str:
    """Format task instances for people."""
    return ", ".join(task if index < 0 else f"{task}[{index}]" for task, index in instances) or "none"


def _instances(data: Any) -> tuple[Instance, ...]:
    return tuple((str(task), int(index)) for task, index in data)
