"""A task that keeps a large state between its tries.

export AIRFLOW__WORKERS__STATE_STORE_BACKEND=entrepot_airflow.state_store.EntrepotStateStoreBackend
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import dag, get_current_context, task


@dag(schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"))
def example_state() -> None:
    @task(retries=1, retry_delay=timedelta(0))
    def work() -> int:
        context: Any = get_current_context()
        states = context["task_state_store"]
        done = states.get("done") or []
        if not done:
            states.set("done", list(range(10_000)))  # not in Airflow's database, which has its name only
            raise RuntimeError("interrupted: the next try goes on from here")
        return len(done)

    work()


example_state()
