"""DAGs whose values are lost and recovered by a policy; run as a script, executes them all and writes the results.

Each task records in a file in the directory that SEEN names that it ran.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pendulum
from airflow.sdk import DAG, get_current_context, task
from entrepot import raw_objects
from entrepot_airflow import FailoverNotifier, last_checkpoint, on_retry
from recorded_steps import Recorder

START = pendulum.datetime(2026, 1, 1, tz="UTC")


def task_instance() -> Any:
    context: Any = get_current_context()
    return context["ti"]


def record_run() -> int:
    """Record that this task instance runs, and return how many times it has run."""
    ti = task_instance()
    with Path(os.environ["SEEN"], ti.dag_id).open("a+") as file:
        file.write(f"{ti.task_id}[{ti.map_index}]\n")
        file.flush()
        file.seek(0)
        return file.read().split().count(f"{ti.task_id}[{ti.map_index}]")


def lose_values(*keys: str) -> None:
    """Remove values from the store, on the first run only, to simulate a loss."""
    ti = task_instance()
    if record_run() > 1:
        return
    with entrepot.connect(scope="tests", session=f"airflow/{ti.dag_id}/{ti.run_id}") as store:
        for key in keys:
            raw_objects.discard(store, store.derive(key))


def write_observation(name: str, value: Any) -> None:
    Path(os.environ["SEEN"], name).write_text(json.dumps(value))


def record_notification(text: str) -> None:
    write_observation("notified", text)


with DAG("mapped_rerun", schedule=None, start_date=START) as mapped_rerun:

    @task
    def sizes() -> list[int]:
        record_run()
        return [1000, 2000, 3000]

    @task
    def grow(size: int) -> Any:
        record_run()
        return np.full(size, size)

    @task
    def lose_one() -> None:
        lose_values("mapped_rerun/grow[1]/return_value")

    @task
    def gather(grown: Any) -> Any:
        sums = [int(value.sum()) for value in grown]  # lazy: each value is read here, not earlier
        record_run()
        write_observation("mapped", sums)
        return np.arange(1000)

    @task
    def pulls_without_an_edge() -> None:
        """Read a value of a task that is not directly upstream: only the policy makes it wait."""
        value = task_instance().xcom_pull(task_ids="base")
        record_run()
        write_observation("pulled", int(value.sum()))

    @task
    def base() -> Any:
        record_run()
        return np.arange(1000)

    @task
    def lose_base() -> None:
        lose_values("mapped_rerun/base/return_value")

    grown = grow.expand(size=sizes())
    grown_lost = lose_one()
    grown.set_downstream(grown_lost)
    gathered = gather(grown)
    grown_lost.set_downstream(gathered)
    base_value, base_lost, pulls = base(), lose_base(), pulls_without_an_edge()
    base_value.set_downstream(base_lost)
    base_lost.set_downstream(pulls)


with DAG("chain", schedule=None, start_date=START, tags=["deep"]) as chain:

    @task
    def first() -> Any:
        record_run()
        return np.arange(1000)

    @task
    def second(value: Any) -> Any:
        record_run()
        return value * 2

    @task
    def lose_both() -> None:
        lose_values("chain/first/return_value", "chain/second/return_value")

    @task
    def third(value: Any) -> Any:
        record_run()
        return value * 3

    @task(
        retries=1,
        retry_delay=0,
        on_retry_callback=[
            on_retry,
            FailoverNotifier(lambda text: write_observation("notified", text), "of {{ dag.dag_id }} failed"),
        ],
    )
    def kept() -> Any:
        context: Any = get_current_context()
        ti = context["ti"]
        if record_run() == 1:
            ti.xcom_push("half", np.arange(1000))
            raise RuntimeError("fails once, with half of it in a checkpoint")
        write_observation("kept", last_checkpoint(context))
        return np.arange(1000)

    first_value = first()
    second_value = second(first_value)
    both_lost = lose_both()
    second_value.set_downstream(both_lost)
    third_value = third(second_value)
    both_lost.set_downstream(third_value)
    kept()


def audited_reruns(dag_id: str) -> list[str]:
    """Task instances of a DAG with a rerun in Airflow's audit log."""
    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.scalars(select(Log).where(Log.event == "entrepot_rerun", Log.dag_id == dag_id)).all()
        return sorted(f"{row.task_id}[{row.map_index}]" for row in rows)


class EmptyExecutor:
    """An executor that knows no tasks and reports that one of them has ended."""

    def __init__(self, key: Any) -> None:
        self._events = {key: ("success", None)}

    def get_event_buffer(self) -> Any:
        return self._events

    def has_task(self, task_instance: Any) -> bool:
        return False


def report_late_end() -> dict[str, Any]:
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
    from entrepot_airflow.policy.rerun_messages import HELD_KEY, REQUEST_KEY, Request
    from entrepot_airflow.policy.rerun_service import serve_once
    from sqlalchemy import func, select

    job = 7
    reader = select(TaskInstance).where(TaskInstance.dag_id == "chain", TaskInstance.task_id == "third")
    held_count = select(func.count()).select_from(XComModel).where(XComModel.key == HELD_KEY)
    observations: dict[str, Any] = {}
    with create_session() as session:
        ti: Any = session.scalar(reader)
        ti.state, ti.queued_by_job_id = "running", job
        key, observations["left"] = ti.key, [ti.max_tries - ti.try_number]
        xcom_fields = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": ti.map_index}
        rerun_request: Any = Request((("second", -1),), "a rule", hold=True, after=(("first", -1),)).to_json()
        XComModel.set(REQUEST_KEY, rerun_request, serialize=False, session=session, **xcom_fields)
    serve_once()
    with create_session() as session:
        ti = session.scalar(reader)
        observations["while it ends"] = [ti.state, session.scalar(held_count)]
        now = timezone.utcnow()
        ti.state = "up_for_reschedule"
        session.add(TaskReschedule(ti.id, now, now, now + timedelta(minutes=5)))
        first: Any = session.scalar(
            select(TaskInstance).where(TaskInstance.dag_id == "chain", TaskInstance.task_id == "first")
        )
        first.state = "running"
    serve_once()
    with create_session() as session:
        observations["while it waits"] = [session.scalar(reader).state, session.scalar(held_count)]  # type: ignore[union-attr]
        first = session.merge(first)
        first.state = "success"
    serve_once()
    with create_session() as session:
        ti = session.scalar(reader)
        observations["let go"] = [ti.state, session.scalar(held_count)]
        history = select(TaskInstanceHistory.state).where(TaskInstanceHistory.task_id == "third")
        observations["history"] = [str(state) for state in session.scalars(history).all()]
        run: Any = session.scalar(select(DagRun).where(DagRun.run_id == ti.run_id, DagRun.dag_id == ti.dag_id))
        dag: Any = DBDagBag().get_dag_for_run(dag_run=run, session=session)
        run.dag = dag
        ti.task = dag.get_task(ti.task_id)
        run.schedule_tis([ti], session=session)
        session.refresh(ti)
        ti.state, ti.queued_by_job_id = "running", job
    with create_session() as session:
        executor: Any = EmptyExecutor(key)
        SchedulerJobRunner.process_executor_events(executor, job, DBDagBag(), session)
    with create_session() as session:
        ti = session.scalar(reader)
        observations["after its late end"] = [ti.state, ti.try_number]
        observations["left"].append(ti.max_tries - ti.try_number)
    return observations


def run_dag(dag: DAG) -> dict[str, Any]:
    run = dag.test()
    states = {f"{ti.task_id}[{ti.map_index}]": str(ti.state) for ti in run.get_task_instances()}
    return {"states": states, "audited": audited_reruns(dag.dag_id)}


def main() -> None:
    recorder = Recorder(Path(sys.argv[1]))
    for dag in (mapped_rerun, chain):
        recorder.run(dag.dag_id, partial(run_dag, dag))
    recorder.run("late end", report_late_end)


if __name__ == "__main__":
    main()
