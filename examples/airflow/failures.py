"""Says, when a task fails or is tried again, which values were lost and what a policy did about it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pendulum
from airflow.sdk import dag, get_current_context, task
from entrepot_airflow import FailoverNotifier


@dag(
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    default_args={"on_failure_callback": FailoverNotifier(), "on_retry_callback": FailoverNotifier()},
)
def example_failures() -> None:
    @task
    def load() -> Any:
        return np.arange(1000)

    @task(retries=1, retry_delay=timedelta(0))
    def total(values: Any) -> int:
        context: Any = get_current_context()
        if context["ti"].try_number == 1:
            raise RuntimeError("fails once")
        return int(values.sum())

    total(load())


example_failures()
