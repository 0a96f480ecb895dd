"""DAGs whose values are lost and recovered by a policy; run as a script, executes them all and writes the results.

Each task records in a file in the directory that SEEN names that it ran.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pendulum
from airflow.sdk import DAG, get_current_context, task
from entrepot import parts
from entrepot_airflow import FailoverNotifier, last_checkpoint, on_retry

START = pendulum.datetime(2026, 1, 1, tz="UTC")


def task_instance() -> Any:
    context: Any = get_current_context()
    return context["ti"]


def ran() -> int:
    """Record that this task instance runs, and return how many times it has run."""
    ti = task_instance()
    with Path(os.environ["SEEN"], ti.dag_id).open("a+") as file:
        file.write(f"{ti.task_id}[{ti.map_index}]\n")
        file.flush()
        file.seek(0)
        return file.read().split().count(f"{ti.task_id}[{ti.map_index}]")


def lose(*keys: str) -> None:
    """Remove values from the store, on the first run only, to simulate a loss."""
    ti = task_instance()
    if ran() > 1:
        return
    with entrepot.connect(scope="tests", session=f"airflow/{ti.dag_id}/{ti.run_id}") as store:
        for key in keys:
            parts.discard(store, store.derive(key))


def seen(name: str, value: Any) -> None:
    Path(os.environ["SEEN"], name).write_text(json.dumps(value))


def notified(text: str) -> None:
    seen("notified", text)


with DAG("mapped_rerun", schedule=None, start_date=START) as mapped_rerun:

    @task
    def sizes() -> list[int]:
        ran()
        return [1000, 2000, 3000]

    @task
    def grow(size: int) -> Any:
        ran()
        return np.full(size, size)

    @task
    def lose_one() -> None:
        lose("mapped_rerun/grow[1]/return_value")

    @task
    def gather(grown: Any) -> Any:
        sums = [int(one.sum()) for one in grown]  # lazy: each value is read here, not earlier
        ran()
        seen("mapped", sums)
        return np.arange(1000)

    @task
    def pulls_without_an_edge() -> None:
        """Read a value of a task that is not directly upstream: only the policy makes it wait."""
        value = task_instance().xcom_pull(task_ids="base")
        ran()
        seen("pulled", int(value.sum()))

    @task
    def base() -> Any:
        ran()
        return np.arange(1000)

    @task
    def lose_base() -> None:
        lose("mapped_rerun/base/return_value")

    grown = grow.expand(size=sizes())
    lost = lose_one()
    grown.set_downstream(lost)
    gathered = gather(grown)
    lost.set_downstream(gathered)
    made, away, pulls = base(), lose_base(), pulls_without_an_edge()
    made.set_downstream(away)
    away.set_downstream(pulls)


with DAG("chain", schedule=None, start_date=START, tags=["deep"]) as chain:

    @task
    def first() -> Any:
        ran()
        return np.arange(1000)

    @task
    def second(value: Any) -> Any:
        ran()
        return value * 2

    @task
    def lose_both() -> None:
        lose("chain/first/return_value", "chain/second/return_value")

    @task
    def third(value: Any) -> Any:
        ran()
        return value * 3

    @task(
        retries=1,
        retry_delay=0,
        on_retry_callback=[
            on_retry,
            FailoverNotifier(lambda text: seen("notified", text), "of {{ dag.dag_id }} failed"),
        ],
    )
    def kept() -> Any:
        context: Any = get_current_context()
        ti = context["ti"]
        if ran() == 1:
            ti.xcom_push("half", np.arange(1000))
            raise RuntimeError("fails once, with half of it in a checkpoint")
        seen("kept", last_checkpoint(context))
        return np.arange(1000)

    one = first()
    two = second(one)
    both = lose_both()
    two.set_downstream(both)
    three = third(two)
    both.set_downstream(three)
    kept()


def audited() -> list[str]:
    """Task instances with a rerun in Airflow's audit log."""
    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.scalars(select(Log).where(Log.event == "entrepot_rerun")).all()
        return sorted(f"{row.task_id}[{row.map_index}]" for row in rows)


class GoneExecutor:
    """An executor that knows no tasks and reports that one of them has ended."""

    def __init__(self, key: Any) -> None:
        self._events = {key: ("success", None)}

    def get_event_buffer(self) -> Any:
        return self._events

    def has_task(self, task_instance: Any) -> bool:
        return False


def late_end() -> dict[str, Any]:
    """Report the end of a rescheduled attempt to the scheduler while the next attempt is running."""
    from datetime import timedelta

    from airflow._shared.timezones import timezone
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
    from airflow.models.dagbag import DBDagBag
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from airflow.models.taskreschedule import TaskReschedule
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from entrepot_airflow.asking import HELD, REQUEST, Request
    from entrepot_airflow.clerk import serve_once
    from sqlalchemy import func, select

    job = 7
    reader = select(TaskInstance).where(TaskInstance.dag_id == "chain", TaskInstance.task_id == "third")
    held = select(func.count()).select_from(XComModel).where(XComModel.key == HELD)
    found: dict[str, Any] = {}
    with create_session() as session:
        ti: Any = session.scalar(reader)
        ti.state, ti.queued_by_job_id = "running", job
        key, found["left"] = ti.key, [ti.max_tries - ti.try_number]
        where = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": ti.map_index}
        asked: Any = Request((("second", -1),), "a rule", hold=True, after=(("first", -1),)).to_json()
        XComModel.set(REQUEST, asked, serialize=False, session=session, **where)
    serve_once()
    with create_session() as session:
        ti = session.scalar(reader)
        found["while it ends"] = [ti.state, session.scalar(held)]
        now = timezone.utcnow()
        ti.state = "up_for_reschedule"
        session.add(TaskReschedule(ti.id, now, now, now + timedelta(minutes=5)))
        first: Any = session.scalar(
            select(TaskInstance).where(TaskInstance.dag_id == "chain", TaskInstance.task_id == "first")
        )
        first.state = "running"
    serve_once()
    with create_session() as session:
        found["while it waits"] = [session.scalar(reader).state, session.scalar(held)]  # type: ignore[union-attr]
        first = session.merge(first)
        first.state = "success"
    serve_once()
    with create_session() as session:
        ti = session.scalar(reader)
        found["let go"] = [ti.state, session.scalar(held)]
        history = select(TaskInstanceHistory.state).where(TaskInstanceHistory.task_id == "third")
        found["history"] = [str(state) for state in session.scalars(history).all()]
        run: Any = session.scalar(select(DagRun).where(DagRun.run_id == ti.run_id, DagRun.dag_id == ti.dag_id))
        dag: Any = DBDagBag().get_dag_for_run(dag_run=run, session=session)
        run.dag = dag
        ti.task = dag.get_task(ti.task_id)
        run.schedule_tis([ti], session=session)
        session.refresh(ti)
        ti.state, ti.queued_by_job_id = "running", job
    with create_session() as session:
        executor: Any = GoneExecutor(key)
        SchedulerJobRunner.process_executor_events(executor, job, DBDagBag(), session)
    with create_session() as session:
        ti = session.scalar(reader)
        found["after its late end"] = [ti.state, ti.try_number]
        found["left"].append(ti.max_tries - ti.try_number)
    return found


def main() -> None:
    found: dict[str, Any] = {}
    for dag in (mapped_rerun, chain):
        try:
            run = dag.test()
        except Exception as error:  # only this DAG's tests should fail because of it
            found[dag.dag_id] = {"the run": f"{type(error).__name__}: {error}"}
            continue
        found[dag.dag_id] = {f"{ti.task_id}[{ti.map_index}]": str(ti.state) for ti in run.get_task_instances()}
    Path(sys.argv[1]).write_text(json.dumps({"states": found, "audited": audited(), "late": late_end()}))


if __name__ == "__main__":
    main()
