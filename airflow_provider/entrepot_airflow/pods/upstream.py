"""Inputs of a task instance, from Airflow's database; for the scheduler's process, before the task's own exists.

A serialized DAG has the order of tasks, and what a mapped task is expanded over, but not which arguments are XComs. So
a task is assumed to read whatever its direct upstream tasks pushed, unless its pod's annotations say otherwise.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot_io.keys import UNMAPPED
from entrepot_io.reference import Reference, is_reference

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MAX_XCOMS = 10_000  # maximum number of XComs per query
DAG_CACHE_SECONDS = 60.0
_INSTANCE_NAME = re.compile(r"(?P<task>.+?)(?:\[(?P<index>\d+)\])?")

_lock = threading.Lock()
_cached_bag: tuple[float, Any] | None = None  # guarded by _lock; (time of creation, bag)


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
    from airflow.utils.session import create_session

    # Not the thread's scoped session, which belongs to the scheduler and would be committed and closed.
    with create_session(scoped=False) as session:
        if reads is not None:
            instances = [parse_instance(item) for item in reads]
            entries = _entries(session, dag_id, run_id, {task for task, _ in instances})
            inputs = [
                item for item in entries if {(item.task_id, None), (item.task_id, item.map_index)} & set(instances)
            ]
        else:
            task = _serialized_task(session, dag_id, task_id, run_id)
            if task is None or not task.upstream_task_ids:
                return []
            entries = _entries(session, dag_id, run_id, task.upstream_task_ids)
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
    found: list[XComEntry] = []
    for name in dict.fromkeys(entry.task_id for entry in entries):
        own = [entry for entry in entries if entry.task_id == name]
        upstream = task.dag.get_task(name)
        if map_index != UNMAPPED and group is not None and upstream.get_closest_mapped_task_group() is group:
            own = [entry for entry in own if entry.map_index == map_index]
        elif expansion is not None and expansion[0] == name and any(entry.map_index != UNMAPPED for entry in own):
            # It is expanded over the existing values: an upstream instance that was skipped leaves no gap.
            own = [entry for entry in own if entry.key == expansion[1]][map_index : map_index + 1]
        found += own
    return found


def _expanded_over(task: Any) -> tuple[str, str] | None:
    """Return task and key whose values are distributed one by one to a mapped task's instances; None: not that case."""
    if not task.is_mapped:
        return None
    value = task._get_specified_expand_input().value
    if not isinstance(value, dict) or len(value) != 1:
        return None
    (argument,) = value.values()
    operator, key = getattr(argument, "operator", None), getattr(argument, "key", None)
    return None if operator is None or not isinstance(key, str) else (operator.task_id, key)


def _serialized_task(session: Session, dag_id: str, task_id: str, run_id: str) -> Any:
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    dag = None if run is None else _dag_bag().get_dag_for_run(run, session=session)
    return None if dag is None or not dag.has_task(task_id) else dag.get_task(task_id)


def _dag_bag() -> Any:
    """Return Airflow's cache of serialized DAGs, as reading one is slow; recreated at times, since it never shrinks."""
    from airflow.models.dagbag import DBDagBag

    global _cached_bag
    now = time.monotonic()
    with _lock:
        if _cached_bag is None or now - _cached_bag[0] > DAG_CACHE_SECONDS:
            _cached_bag = (now, DBDagBag(load_op_links=False))
        return _cached_bag[1]


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _entries(session: Session, dag_id: str, run_id: str, tasks: Iterable[str]) -> list[XComEntry]:
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    columns = (XComModel.task_id, XComModel.map_index, XComModel.key, XComModel.value)
    query = (
        select(*columns)
        .where(XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.task_id.in_(list(tasks)))
        .order_by(XComModel.task_id, XComModel.map_index, XComModel.key)
        .limit(MAX_XCOMS)
    )
    return [XComEntry(*row) for row in session.execute(query).all()]
