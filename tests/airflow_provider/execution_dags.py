"""DAGs with Airflow's other ways to run a task and to pull; run as a script, executes them all.

Each task records what it observed in READ.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pendulum
from airflow.sdk import DAG, get_current_context, setup, task, teardown
from recorded_steps import Recorder

START = pendulum.datetime(2026, 1, 1, tz="UTC")
READ: dict[str, Any] = {}


def task_instance() -> Any:
    context: Any = get_current_context()
    return context["ti"]


with DAG("surrounded", schedule=None, start_date=START) as surrounded:

    @setup
    def provide() -> Any:
        return np.arange(5000)

    @task
    def break_off(values: Any) -> None:
        READ["work"] = int(values.sum())
        raise RuntimeError("the work fails after it has read its input")

    @teardown
    def remove(values: Any) -> None:
        READ["teardown"] = int(values.sum())

    provided: Any = provide()
    work: Any = break_off(provided)
    provided.set_downstream(work)
    work.set_downstream(remove(provided))


with DAG("dated", schedule=None, start_date=START) as dated:

    @task
    def pull_earlier() -> None:
        ti = task_instance()
        value = ti.xcom_pull(task_ids="number", include_prior_dates=True)
        same_run = ti.xcom_pull(task_ids="number")
        READ.setdefault("earlier", []).append([None if value is None else int(value[0]), same_run is None])

    @task
    def number() -> Any:
        return np.full(5000, READ["round"])

    pulled: Any = pull_earlier()
    pulled.set_downstream(number())


with DAG("asynchronous", schedule=None, start_date=START) as asynchronous:

    @task
    async def produce() -> Any:
        await asyncio.sleep(0)
        return np.full(5000, 3)

    @task
    async def consume(value: Any) -> Any:
        # dag.test(), which runs this, cannot pull or push asynchronously: Airflow 3.3.2 has no `asend` there.
        pulled = await asyncio.to_thread(task_instance().xcom_pull, task_ids="produce")
        READ["awaited"] = [int(value[0]), int(pulled[0])]

    consume(produce())


def run_surrounded() -> dict[str, Any]:
    run = surrounded.test()
    return {"states": {ti.task_id: str(ti.state) for ti in run.get_task_instances()}, **READ}


def run_dated() -> Any:
    for day in range(2):
        READ["round"] = day
        dated.test(logical_date=START.add(days=day))
    return READ["earlier"]


def run_asynchronous() -> Any:
    return [str(asynchronous.test().state), READ["awaited"]]


def main() -> None:
    recorder = Recorder(Path(sys.argv[1]))
    recorder.run("surrounded", run_surrounded)
    recorder.run("dated", run_dated)
    recorder.run("asynchronous", run_asynchronous)


if __name__ == "__main__":
    main()
