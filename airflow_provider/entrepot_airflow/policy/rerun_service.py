"""The scheduler's side of reruns: clears requested tasks, releases the requesters, and finalizes finished runs.

Runs in a thread of the scheduler process, because that has the database, exists in every Airflow deployment, and needs
no credentials. It does little: it queries an indexed column once a second, and starts a process for anything slow.

on_starting --job is a scheduler's--> (polling) --request--> cleared and answered, in one transaction
                                          |--reader rescheduled--> released (held_readers.py)
                                          `--run over--> a process that finalizes it
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from entrepot_io.plain_log import plain_logger
from entrepot_io.sessions import run_session

from entrepot_airflow.compat import task_instances
from entrepot_airflow.compat.database import database_session, lock_xcoms, write_xcom
from entrepot_airflow.configuration import POLICY_VARIABLE, current_settings, default_scope, policy_path
from entrepot_airflow.policy.held_readers import hold_reader, release_readers
from entrepot_airflow.policy.rerun_messages import (
    ANSWER_KEY,
    REQUEST_KEY,
    Answer,
    Request,
    format_instances,
)
from entrepot_airflow.policy.task_attempts import ORCHESTRATOR
from entrepot_airflow.scheduler_thread import SchedulerThread, block_forks

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = plain_logger(__name__)
POLL_SECONDS = 1.0
MAX_REQUESTS_PER_POLL = 100  # maximum number of requests handled per poll
MAX_FINALIZERS = 2  # maximum number of concurrent processes
AUDIT_EVENT = "entrepot_rerun"  # event name in Airflow's audit log


def serve_once() -> int:
    """Handle all pending requests; return how many there were.

    Raises:
        SQLAlchemyError: the database does not answer; the requests stay.
    """
    with database_session() as session:
        # Several schedulers may poll at the same time: rows that another one is handling are skipped.
        rows = lock_xcoms(REQUEST_KEY, session, limit=MAX_REQUESTS_PER_POLL)
        for row in rows:
            answer = _handle_request(row, session)
            write_xcom(row, ANSWER_KEY, answer.to_json(), session)
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
    existing = task_instances.find_instances(dag_id, run_id, {task_id for task_id, _ in request.tasks}, session)
    if missing := [instance for instance in request.tasks if instance not in existing]:
        return Answer(request.id, problem=f"the run no longer has {format_instances(missing)}")
    finished = [instance for instance in request.tasks if task_instances.is_finished(existing[instance].state)]
    if finished:
        task_instances.clear_instances(
            [existing[instance] for instance in finished],
            session,
            event=AUDIT_EVENT,
            owner="entrepot",
            extra=request.rule,
        )
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
