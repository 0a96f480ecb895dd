"""Lineage known to Airflow: names in keys, the DAG of this task, entries in Airflow's database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from entrepot_io.keys import airflow_key
from entrepot_io.reference import Reference, is_reference
from entrepot_io.sessions import run_session
from entrepot_policy import ObjectRef, Task

from entrepot_airflow.compat.task_process import read_xcom
from entrepot_airflow.policy.task_attempts import ORCHESTRATOR, instance_of, last_attempt, task_name
from entrepot_airflow.task_inputs import map_indexes, xcom_references

_SHORTENED = re.compile(r"~[0-9a-f]{16}$")  # added by entrepot_io.keys.shorten: the run's name is not recoverable


class AirflowGraph:
    """Graph used when the store's lineage was lost with the store.

    Values that a task pulls itself, besides its arguments, are not known here. If one of them is lost too, the rerun
    task notices when it reads it, and has it recomputed in turn.
    """

    def maker(self, ref: ObjectRef, /) -> Task | None:
        """As :meth:`entrepot_policy.Graph.maker`; derived from an XCom's key and session."""
        run, instance = _run_of(ref.session), _task_of(ref.key)
        if run is None or instance is None or run[0] != instance[0]:
            return None
        return Task(ORCHESTRATOR, run[0], run[1], task_name(instance[1], instance[2]))

    def inputs(self, task: Task, output: ObjectRef, /) -> Sequence[ObjectRef] | None:
        """As :meth:`entrepot_policy.Graph.inputs`: what the DAG passes to the task by reference."""
        attempt = last_attempt()
        if attempt is None or attempt.ti is None:
            return None
        own_task = attempt.task
        if (task.orchestrator, task.pipeline, task.run) != (ORCHESTRATOR, own_task.pipeline, own_task.run):
            return None
        task_id, map_index = instance_of(task)
        dag = attempt.ti.task.dag
        if task_id not in dag.task_dict:
            return None
        operator = dag.task_dict[task_id]
        references: dict[ObjectRef, None] = {}
        for upstream, key in dict.fromkeys(xcom_references(operator)):
            for index in map_indexes(attempt.ti, operator, map_index, upstream):
                stored = read_xcom(attempt.ti, upstream.task_id, index, key)
                if is_reference(stored):
                    references[ObjectRef.of(Reference.parse(stored))] = None
        return list(references)


def _run_of(session: str) -> tuple[str, str] | None:
    attempt = last_attempt()
    if attempt is not None and run_session(ORCHESTRATOR, attempt.task.pipeline, attempt.task.run) == session:
        return attempt.task.pipeline, attempt.task.run
    parts = session.split("/")
    if len(parts) != 3 or parts[0] != ORCHESTRATOR or _SHORTENED.search(session):
        return None
    dag_id, run_id = unquote(parts[1]), unquote(parts[2])
    return (dag_id, run_id) if run_session(ORCHESTRATOR, dag_id, run_id) == session else None


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
