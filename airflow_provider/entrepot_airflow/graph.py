"""Lineage known to Airflow: names in keys, the DAG of this task, entries in Airflow's database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from entrepot_io.keys import airflow_key
from entrepot_io.policy import ObjectRef, Task
from entrepot_io.reference import Reference, is_reference
from entrepot_io.sessions import run_session

from entrepot_airflow.attempts import HOST, instance_of, last, task_name

_SHORTENED = re.compile(r"~[0-9a-f]{16}$")  # added by entrepot_io.keys.shorten: the run's name is not recoverable


class AirflowGraph:
    """Graph used when the store's lineage was lost with the store.

    Values that a task pulls itself, besides its arguments, are not known here. If one of them is lost too, the rerun
    task notices when it reads it, and has it recomputed in turn.
    """

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """As :meth:`entrepot_io.policy.Graph.maker`; derived from an XCom's key and session."""
        run, at = _run_of(ref.session), _task_of(ref.key)
        if run is None or at is None or run[0] != at[0]:
            return None
        return Task(HOST, run[0], run[1], task_name(at[1], at[2]))

    def inputs(self, task: Task, output: ObjectRef, /) -> Sequence[ObjectRef] | None:
        """As :meth:`entrepot_io.policy.Graph.inputs`: what the DAG passes to the task by reference."""
        attempt = last()
        if attempt is None or attempt.ti is None:
            return None
        mine = attempt.task
        if (task.host, task.pipeline, task.run) != (HOST, mine.pipeline, mine.run):
            return None
        task_id, map_index = instance_of(task)
        dag = attempt.ti.task.dag
        if task_id not in dag.task_dict:
            return None
        operator = dag.task_dict[task_id]
        found: dict[ObjectRef, None] = {}
        for upstream, key in dict.fromkeys(references(operator)):
            for index in map_indexes(attempt.ti, operator, map_index, upstream):
                kept = entry(attempt.ti, upstream.task_id, index, key)
                if is_reference(kept):
                    found[ObjectRef.of(Reference.parse(kept))] = None
        return list(found)


def _run_of(session: str) -> tuple[str, str] | None:
    attempt = last()
    if attempt is not None and run_session(HOST, attempt.task.pipeline, attempt.task.run) == session:
        return attempt.task.pipeline, attempt.task.run
    parts = session.split("/")
    if len(parts) != 3 or parts[0] != HOST or _SHORTENED.search(session):
        return None
    dag_id, run_id = unquote(parts[1]), unquote(parts[2])
    return (dag_id, run_id) if run_session(HOST, dag_id, run_id) == session else None


def _task_of(key: str) -> tuple[str, str, int | None] | None:
    parts = key.split("/")
    if len(parts) != 3:
        return None
    name, bracket, index = parts[1].partition("[")
    if bracket and not (index.endswith("]") and index[:-1].isdigit()):
        return None
    dag_id, task_id, xcom_key = unquote(parts[0]), unquote(name), unquote(parts[2])
    map_index = int(index[:-1]) if bracket else None
    return (dag_id, task_id, map_index) if airflow_key(dag_id, task_id, map_index, xcom_key) == key else None


def references(operator: Any) -> Iterator[tuple[Any, str]]:
    """Yield the XComs in a task's arguments, as upstream operator and key."""
    from airflow.sdk import XComArg

    if operator.is_mapped:
        yield from XComArg.iter_xcom_references(operator.partial_kwargs)
        yield from operator._get_specified_expand_input().iter_references()
    else:
        yield from XComArg.iter_xcom_references(operator)
    group = operator.get_closest_mapped_task_group()
    if group is not None:
        yield from group._expand_input.iter_references()


def map_indexes(ti: Any, operator: Any, map_index: int, upstream: Any) -> Sequence[int]:
    """Return the instances of an upstream task that one instance of a task reads; ``[-1]``: it is not mapped."""
    group = upstream.get_closest_mapped_task_group()
    if not upstream.is_mapped and group is None:
        return [-1]
    if map_index >= 0 and group is not None and group is operator.get_closest_mapped_task_group():
        return [map_index]  # within a mapped group, an instance reads those of its own index
    return range(ti.get_ti_count(dag_id=ti.dag_id, task_ids=[upstream.task_id], run_ids=[ti.run_id]))


def entry(ti: Any, task_id: str, map_index: int, key: str) -> Any:
    """Return what Airflow stores for an XCom of the same run; None: nothing."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetXCom

    comms: Any = task_runner.SUPERVISOR_COMMS
    asked = GetXCom(
        key=key, dag_id=ti.dag_id, run_id=ti.run_id, task_id=task_id, map_index=None if map_index < 0 else map_index
    )
    return getattr(comms.send(asked), "value", None)
