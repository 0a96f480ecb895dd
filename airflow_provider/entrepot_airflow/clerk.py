"""The scheduler's side: clears what tasks asked for, lets go those who asked, and settles runs that are over.

A thread of the scheduler's process, because that has the database, is there wherever Airflow is, and needs no
credentials. It does little: it looks at an indexed column once a second, and starts a process for what takes time.

on_starting --job is a scheduler's--> (looking) --request--> cleared and answered, in one transaction
                                          |--reader rescheduled--> let go (holding.py)
                                          `--run over--> a process that settles it
"""

from __future__ import annotations

import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from entrepot_io.sessions import run_session

from entrepot_airflow.asking import ANSWER, REQUEST, Answer, Instance, Request, in_words
from entrepot_airflow.attempts import HOST
from entrepot_airflow.configuration import POLICY_VARIABLE, default_scope, policy_path, settings
from entrepot_airflow.holding import hold, let_go

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
KIND_SECONDS = 60.0  # that a component has to say what it is
MOST_AT_ONCE = 100  # requests of one look
MOST_SETTLING = 2  # processes
EVENT = "entrepot_rerun"  # in Airflow's audit log

# A look at the database is never cut in two by a fork: the executor forks its workers from this process, and what a
# driver has locked at that moment would stay so in them.
_looking = threading.Lock()


def _after_fork_in_child() -> None:
    global _looking
    _looking = threading.Lock()


os.register_at_fork(
    before=lambda: _looking.acquire(), after_in_parent=lambda: _looking.release(), after_in_child=_after_fork_in_child
)


@contextmanager
def looking() -> Iterator[None]:
    """No fork of this process happens in such a block."""
    with _looking:
        yield


def serve_once() -> int:
    """Do all that is asked for now; how many requests there were.

    Raises:
        SQLAlchemyError: the database does not answer; what was asked stays.
    """
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from airflow.utils.sqlalchemy import with_row_locks
    from sqlalchemy import select

    with create_session() as session:
        query = select(XComModel).where(XComModel.key == REQUEST).limit(MOST_AT_ONCE)
        # Several schedulers may look at the same time: each takes what no other has in hand.
        rows = session.scalars(with_row_locks(query, session, of=XComModel, skip_locked=True)).all()
        for row in rows:
            answer = _answer(row, session)
            XComModel.set(
                ANSWER,
                answer.to_json(),
                dag_id=row.dag_id,
                task_id=row.task_id,
                run_id=row.run_id,
                map_index=row.map_index,
                serialize=False,
                session=session,
            )
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
    """Clear exactly these task instances, up- and downstream left as they are."""
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
    """The thread. One in a process; :meth:`start` in the scheduler's alone."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._over: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._settling: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._thread: threading.Thread | None = None

    def start(self, job: Any) -> None:
        """Begin when a job turns out to be the scheduler's.

        Args:
            job: Airflow's; it is told to listeners before it says which kind it is.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(job,), name="entrepot-clerk", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what it is doing is finished first."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(KIND_SECONDS)

    def run_ended(self, dag_id: str, run_id: str) -> None:
        """Have a run settled: what was put off is written, or abandoned and said so."""
        self._over.put((dag_id, run_id))

    def _run(self, job: Any) -> None:
        end = time.monotonic() + KIND_SECONDS
        # Looked up without SQLAlchemy, which might ask the database in the wrong thread.
        while (kind := vars(job).get("job_type")) is None:
            if self._stop.wait(0.05) or time.monotonic() > end:
                return
        if kind != "SchedulerJob":
            return
        log.info("Entrepot: tasks that the policy %s wants to run again are cleared by this scheduler", policy_path())
        failing = False
        while not self._stop.wait(LOOK_SECONDS):
            try:
                with _looking:
                    serve_once()
                self._settle()
                failing = False
            except Exception as error:  # whatever the database says: the scheduler has to live with it too
                if not failing:
                    log.warning("Entrepot: requests of tasks cannot be looked at now: %s", error)
                failing = True

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
