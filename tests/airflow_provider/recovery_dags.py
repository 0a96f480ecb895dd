"""DAGs whose values get lost and come back by a policy; as a script, runs them all and prints what happened.

Each task notes in a file of the folder that SEEN names that it ran.
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
    """Note that this task instance runs, and say how often it did."""
    ti = task_instance()
    with Path(os.environ["SEEN"], ti.dag_id).open("a+") as file:
        file.write(f"{ti.task_id}[{ti.map_index}]\n")
        file.flush()
        file.seek(0)
        return file.read().split().count(f"{ti.task_id}[{ti.map_index}]")


def lose(*keys: str) -> None:
    """Take values from the store, once, as a loss would."""
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
        sums = [int(one.sum()) for one in grown]  # read one by one, here and not before
        ran()
        seen("mapped", sums)
        return np.arange(1000)

    @task
    def pulls_without_an_edge() -> None:
        """Reads what it does not depend on: nothing but the policy makes it wait."""
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
    """What Airflow's audit log has about reruns."""
    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.scalars(select(Log).where(Log.event == "entrepot_rerun")).all()
        return sorted(f"{row.task_id}[{row.map_index}]" for row in rows)


def main() -> None:
    found: dict[str, Any] = {}
    for dag in (mapped_rerun, chain):
        run = dag.test()
        found[dag.dag_id] = {f"{ti.task_id}[{ti.map_index}]": str(ti.state) for ti in run.get_task_instances()}
    Path(sys.argv[1]).write_text(json.dumps({"states": found, "audited": audited()}))


if __name__ == "__main__":
    main()
