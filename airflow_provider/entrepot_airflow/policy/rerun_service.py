"""The scheduler's side of reruns: clears requested tasks, releases the requesters, and finalizes finished runs.

Runs in a thread of the scheduler process, because that has the database, exists in every Airflow deployment, and needs
no credentials. It does little: it queries an indexed column once a second, and starts a process for anything slow.

on_starting --job is a scheduler's--> (polling) --request--> cleared and answered, in one transaction
                                          |--reader rescheduled--> released (held_readers.py)
                                          `--run over--> a process that finalizes it
"""

from __future__ import annotations

import logging
import os
import queue
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from entrepot_io.sessions import run_session

from entrepot_airflow.configuration import POLICY_VARIABLE, current_settings, default_scope, policy_path
from entrepot_airflow.policy.held_readers import hold_reader, release_readers
from entrepot_airflow.policy.rerun_messages import (
    ANSWER_KEY,
    REQUEST_KEY,
    Answer,
    Instance,
    Request,
    format_instances,
    post_message,
)
from entrepot_airflow.policy.task_attempts import ORCHESTRATOR
from entrepot_airflow.scheduler_thread import SchedulerThread, block_forks

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)
POLL_SECONDS = 1.0
MAX_REQUESTS_PER_POLL = 100  # maximum number of requests handled per poll
MAX_FINALIZERS = 2  # maximum number of concurrent processes
AUDIT_EVENT = "entrepot_rerun"  # event name in Airflow's audit log


def serve_once() -> int:
    """Handle all pending requests; return how many there were.

    Raises:
        SQLAlchemyError: the database does not answer; the requests stay.
    """
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from airflow.utils.sqlalchemy import with_row_locks
    from sqlalchemy import select

    with create_session() as session:
        query = select(XComModel).where(XComModel.key == REQUEST_KEY).limit(MAX_REQUESTS_PER_POLL)
        # Several schedulers may poll at the same time: skip rows that another one is handling.
        rows = session.scalars(with_row_locks(query, session, of=XComModel, skip_locked=True)).all()
        for row in rows:
            answer = _handle_request(row, session)
            post_message(row, ANSWER_KEY, answer.to_json(), session)
            session.delete(row)
        release_readers(session)
        return len(rows)


def _handle_request(row: Any, session: Session) -> Answer:
    requester = f"{row.dag_id}/{format_instances([(row.task_id, row.map_index)])} in run {row.run_id}"
    try:
        request = Request.from_json(row.value)
    except ValueError as error:
        log.error("Entrepot: rejected a request from %s: %s", requester, error)
        return Answer("", problem=str(error))
    answer = _clear_tasks(row.dag_id, row.run_id, request, session)
    if request.hold and not answer.problem:
        hold_reader(row, request.after, session)
        answer = replace(answer, held=True)
    if answer.problem:
        log.error("Entrepot: cannot rerun tasks for %s (%s): %s", requester, request.rule, answer.problem)
    elif request.tasks:
        log.info(
            "Entrepot: %s needs lost values (%s): cleared %s", requester, request.rule, format_instances(answer.cleared)
        )
    return answer


def _clear_tasks(dag_id: str, run_id: str, request: Request, session: Session) -> Answer:
    """Clear exactly these task instances, leaving those up- and downstream as they are."""
    from airflow.models.log import Log
    from airflow.models.taskinstance import TaskInstance, clear_task_instances
    from airflow.utils.state import State
    from sqlalchemy import select

    ids = {task_id for task_id, _ in request.tasks}
    query = select(TaskInstance).where(
        TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.task_id.in_(ids)
    )
    task_instances: dict[Instance, TaskInstance] = {
        (ti.task_id, ti.map_index): ti for ti in session.scalars(query).all()
    }
    if missing := [instance for instance in request.tasks if instance not in task_instances]:
        return Answer(request.id, problem=f"the run no longer has {format_instances(missing)}")
    finished = [instance for instance in request.tasks if task_instances[instance].state in State.finished]
    if finished:
        for ti in (task_instances[instance] for instance in finished):  # for Airflow's audit log
            audit_fields: dict[str, Any] = {
                "dag_id": dag_id,
                "run_id": run_id,
                "task_id": ti.task_id,
                "map_index": ti.map_index,
            }
            session.add(
                Log(AUDIT_EVENT, owner="entrepot", extra=request.rule, try_number=ti.try_number, **audit_fields)
            )
        clear_task_instances([task_instances[instance] for instance in finished], session)
    return Answer(
        request.id, tuple(finished), tuple(instance for instance in request.tasks if instance not in finished)
    )


class RerunService:
    """Work that the scheduler does for tasks, in a thread of its own. One per process."""

    def __init__(self) -> None:
        self._ended_runs: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._finalizers: list[tuple[str, subprocess.Popen[bytes]]] = []  # accessed only by its thread
        self.thread = SchedulerThread(
            "entrepot-rerun-service",
            POLL_SECONDS,
            self._poll,
            failure_message="cannot read rerun requests",
            on_begin=lambda: log.info(
                "Entrepot: this scheduler clears the tasks that the policy %s reruns", policy_path()
            ),
        )

    def queue_finalization(self, dag_id: str, run_id: str) -> None:
        """Have a run finalized: its pending checkpoints are written, or reported as abandoned."""
        self._ended_runs.put((dag_id, run_id))

    def _poll(self) -> None:
        with block_forks():
            serve_once()
        self._run_finalizers()

    def _run_finalizers(self) -> None:
        for name, process in list(self._finalizers):
            if process.poll() is not None:
                self._finalizers.remove((name, process))
                if process.returncode:
                    log.warning("Entrepot: failed to finalize %s (exit code %d)", name, process.returncode)
        while len(self._finalizers) < MAX_FINALIZERS and not self._ended_runs.empty():
            dag_id, run_id = self._ended_runs.get()
            settings = current_settings()
            environment = os.environ | {POLICY_VARIABLE: policy_path()}
            if settings.address:
                environment["ENTREPOT_ADDRESS"] = settings.address
            arguments = [settings.scope or default_scope(), run_session(ORCHESTRATOR, dag_id, run_id)]
            command = [sys.executable, "-m", "entrepot_airflow.policy.finalize_run", *arguments]
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
            self._finalizers.append((f"{dag_id}/{run_id}", process))


RERUN_SERVICE = RerunService()
