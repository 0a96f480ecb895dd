"""Inputs of a task instance, from Airflow's database; for the scheduler's process, before the task's own exists.

A serialized DAG has the order of tasks, and what a mapped task is expanded over, but not which arguments are XComs. So
a task is assumed to read whatever its direct upstream tasks pushed, unless its pod's annotations say otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot_io.keys import UNMAPPED
from entrepot_io.reference import Reference, is_reference

from entrepot_airflow.compat.database import database_session, serialized_task, xcoms_of_tasks
from entrepot_airflow.compat.mapping import expanded_values

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MAX_XCOMS = 10_000  # maximum number of XComs per query
_INSTANCE_NAME = re.compile(r"(?P<task>.+?)(?:\[(?P<index>\d+)\])?")


@dataclass(frozen=True)
class XComEntry:
    """One XCom.

    Attributes:
        task_id, map_index, key: its identity.
        value: what Airflow stores for it.
    """

    task_id: str
    map_index: int
    key: str
    value: Any


def input_references(
    dag_id: str, task_id: str, run_id: str, map_index: int, reads: Sequence[str] | None = None
) -> list[Reference]:
    """Return references to what a task instance will read.

    Args:
        dag_id, task_id, run_id, map_index: the instance; map index -1: not mapped.
        reads: tasks whose XComs it reads, ``"load"`` or ``"load[3]"``; None: its direct upstream tasks.

    Raises:
        SQLAlchemyError: the database does not answer.
        InvalidReference: an XCom was modified in the database.
    """
    with database_session(own=True) as session:
        if reads is not None:
            instances = [parse_instance(item) for item in reads]
            entries = _entries(dag_id, run_id, {task for task, _ in instances}, session)
            inputs = [
                item for item in entries if {(item.task_id, None), (item.task_id, item.map_index)} & set(instances)
            ]
        else:
            task = serialized_task(dag_id, task_id, run_id, session)
            if task is None or not task.upstream_task_ids:
                return []
            entries = _entries(dag_id, run_id, task.upstream_task_ids, session)
            inputs = select_inputs(task, map_index, entries)
        return [Reference.parse(item.value) for item in inputs if is_reference(item.value)]


def parse_instance(name: str) -> tuple[str, int | None]:
    """Return task and map index of ``load`` or ``load[3]``.

    >>> parse_instance("group.load"), parse_instance("load[3]")
    (('group.load', None), ('load', 3))
    """
    match = _INSTANCE_NAME.fullmatch(name)
    index = None if match is None else match["index"]
    return (name, None) if match is None or index is None else (match["task"], int(index))


def select_inputs(task: Any, map_index: int, entries: Sequence[XComEntry]) -> list[XComEntry]:
    """Return the entries of upstream tasks that one instance of a task reads.

    Args:
        task: the task, from the serialized DAG.
        map_index: map index of the instance.
        entries: the entries, ascending by task and map index.
    """
    group = task.get_closest_mapped_task_group()
    expansion = _expanded_over(task) if map_index != UNMAPPED else None
    selected: list[XComEntry] = []
    for name in dict.fromkeys(entry.task_id for entry in entries):
        own = [entry for entry in entries if entry.task_id == name]
        upstream = task.dag.get_task(name)
        if map_index != UNMAPPED and group is not None and upstream.get_closest_mapped_task_group() is group:
            own = [entry for entry in own if entry.map_index == map_index]
        elif expansion is not None and expansion[0] == name and any(entry.map_index != UNMAPPED for entry in own):
            # It is expanded over the existing values: an upstream instance that was skipped leaves no gap.
            own = [entry for entry in own if entry.key == expansion[1]][map_index : map_index + 1]
        selected += own
    return selected


def _expanded_over(task: Any) -> tuple[str, str] | None:
    """Return task and key whose values are distributed one by one to a mapped task's instances; None: not that case."""
    if not task.is_mapped:
        return None
    value = expanded_values(task)
    if not isinstance(value, dict) or len(value) != 1:
        return None
    (argument,) = value.values()
    operator, key = getattr(argument, "operator", None), getattr(argument, "key", None)
    return None if operator is None or not isinstance(key, str) else (operator.task_id, key)


def _entries(dag_id: str, run_id: str, tasks: Iterable[str], session: Session) -> list[XComEntry]:
    return [XComEntry(*row) for row in xcoms_of_tasks(dag_id, run_id, tasks, session, limit=MAX_XCOMS)]
