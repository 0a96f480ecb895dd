"""The scheduler's side of reruns: clears requested tasks, releases the requesters, and finalizes finished runs.

Runs in a thread of the scheduler process, because that has the database, exists in every Airflow deployment, and needs
no credentials. It does little: it queries an indexed column once a second, and starts a process for anything slow.

on_starting --job is a scheduler's--> (polling) --request--> cleared and answered, in one transaction
                                          |--reader rescheduled--> released (holding.py)
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

from entrepot_airflow.asking import ANSWER, REQUEST, Answer, Instance, Request, in_words, leave
from entrepot_airflow.attempts import HOST
from entrepot_airflow.configuration import POLICY_VARIABLE, default_scope, policy_path, settings
from entrepot_airflow.holding import hold, let_go
from entrepot_airflow.scheduler_thread import SchedulerThread, looking

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
MOST_AT_ONCE = 100  # maximum number of requests handled per poll
MOST_SETTLING = 2  # maximum number of concurrent processes
EVENT = "entrepot_rerun"  # event name in Airflow's audit log


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
        query = select(XComModel).where(XComModel.key == REQUEST).limit(MOST_AT_ONCE)
        # Several schedulers may poll at the same time: skip rows that another one is handling.
        rows = session.scalars(with_row_locks(query, session, of=XComModel, skip_locked=True)).all()
        for row in rows:
            answer = _answer(row, session)
            leave(row, ANSWER, answer.to_json(), session)
            session.delete(row)
        let_go(session)
        return len(rows)


def _answer(row: Any, session: Session) -> Answer:
    who = f"{row.dag_id}/{in_words([(row.task_id, row.map_index)])} in run {row.run_id}"
    try:
        request = Request.from_json(row.value)
    except ValueError as error:
        log.error("Entrepot: %s left %s", who, error)
        return Answer("", problem=str(error))
    answer = _cleared(row.dag_id, row.run_id, request, session)
    if request.hold and not answer.problem:
        hold(row, request.after, session)
        answer = replace(answer, held=True)
    if answer.problem:
        log.error("Entrepot: %s wants tasks to run again (%s): %s", who, request.rule, answer.problem)
    elif request.tasks:
        log.info("Entrepot: %s misses values (%s): cleared %s", who, request.rule, in_words(answer.cleared))
    return answer


def _cleared(dag_id: str, run_id: str, request: Request, session: Session) -> Answer:
    """Clear exactly these task instances, leaving those up- and downstream as they are."""
    from airflow.models.log import Log
    from airflow.models.taskinstance import TaskInstance, clear_task_instances
    from airflow.utils.state import State
    from sqlalchemy import select

    ids = {task_id for task_id, _ in request.tasks}
    query = select(TaskInstance).where(
        TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.task_id.in_(ids)
    )
    found: dict[Instance, TaskInstance] = {(ti.task_id, ti.map_index): ti for ti in session.scalars(query).all()}
    if missing := [one for one in request.tasks if one not in found]:
        return Answer(request.id, problem=f"the run has no {in_words(missing)} any more")
    over = [one for one in request.tasks if found[one].state in State.finished]
    if over:
        for ti in (found[one] for one in over):  # for Airflow's audit log
            who: dict[str, Any] = {"dag_id": dag_id, "run_id": run_id, "task_id": ti.task_id, "map_index": ti.map_index}
            session.add(Log(EVENT, owner="entrepot", extra=request.rule, try_number=ti.try_number, **who))
        clear_task_instances([found[one] for one in over], session)
    return Answer(request.id, tuple(over), tuple(one for one in request.tasks if one not in over))


class Clerk:
    """Work that the scheduler does for tasks, in a thread of its own. One per process."""

    def __init__(self) -> None:
        self._over: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._settling: list[tuple[str, subprocess.Popen[bytes]]] = []  # accessed only by the clerk's thread
        self.thread = SchedulerThread(
            "entrepot-clerk",
            LOOK_SECONDS,
            self._look,
            trouble="requests of tasks cannot be looked at",
            begins=lambda: log.info(
                "Entrepot: tasks that the policy %s wants to run again are cleared by this scheduler", policy_path()
            ),
        )

    def run_ended(self, dag_id: str, run_id: str) -> None:
        """Have a run finalized: its pending checkpoints are written, or reported as abandoned."""
        self._over.put((dag_id, run_id))

    def _look(self) -> None:
        with looking():
            serve_once()
        self._settle()

    def _settle(self) -> None:
        for name, process in list(self._settling):
            if process.poll() is not None:
                self._settling.remove((name, process))
                if process.returncode:
                    log.warning("Entrepot: the end of %s was not settled (exit %d)", name, process.returncode)
        while len(self._settling) < MOST_SETTLING and not self._over.empty():
            dag_id, run_id = self._over.get()
            now = settings()
            environment = os.environ | {POLICY_VARIABLE: policy_path()}
            if now.address:
                environment["ENTREPOT_ADDRESS"] = now.address
            arguments = [now.scope or default_scope(), run_session(HOST, dag_id, run_id)]
            command = [sys.executable, "-m", "entrepot_airflow.settling", *arguments]
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
            self._settling.append((f"{dag_id}/{run_id}", process))


CLERK = Clerk()
