"""The subject of a rule: a task, or an output of a task."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Task:
    """One task of one run in an orchestrator: the unit that can be run again.

    Attributes:
        orchestrator: ``"airflow"``, ``"dagster"`` or ``"kedro"``.
        pipeline: DAG, job or pipeline.
        run: which run of it.
        name: the task, as the orchestrator names it within the run (including mapped instances).
    """

    orchestrator: str
    pipeline: str
    run: str
    name: str

    @property
    def host(self) -> str:
        """Former name of ``orchestrator``, deprecated."""
        return self.orchestrator

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.name}" if self.pipeline else self.name


@dataclass(frozen=True)
class Subject:
    """The properties that rules match. Those that an orchestrator lacks are empty.

    Attributes:
        task: whose output it is.
        key: its key in the store.
        asset: the asset key, its parts joined by ``/``.
        dataset: the name in Kedro's catalog.
        tags: of the task or the asset, ``name`` or ``name=value``.
        type: of the value.
        nbytes: of the value; None before there is one.
        fan_out: how many tasks read it; None: unknown.
    """

    task: Task
    key: str = ""
    asset: str = ""
    dataset: str = ""
    tags: frozenset[str] = field(default_factory=frozenset[str])
    type: str = ""
    nbytes: int | None = None
    fan_out: int | None = None

    def of_value(self, *, key: str, type: str, nbytes: int) -> Subject:
        """The same, with the properties of its value."""
        return replace(self, key=key, type=type, nbytes=nbytes)
