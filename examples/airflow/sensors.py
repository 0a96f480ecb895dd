"""Waits for an object and for a collection that others put: here, two tasks of the same DAG."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pendulum
from airflow.sdk import dag, get_current_context, task
from entrepot_airflow.hooks.entrepot import EntrepotHook
from entrepot_airflow.sensors.entrepot import EntrepotCollectionSensor, EntrepotObjectSensor


def opened() -> Any:
    """A session of the store for this run, which all of its tasks know by name."""
    context: Any = get_current_context()
    return EntrepotHook(session=f"example_sensors/{context['run_id']}").get_conn()


@dag(schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"))
def example_sensors() -> None:
    @task
    def put() -> None:
        store = opened()
        store.put(pd.DataFrame({"rate": [1.0, 1.5]}), name="rates")
        parts = store.collection("orders")
        for index in range(3):
            parts.put(pd.DataFrame({"amount": [index]}), index=index)
        parts.seal(3)

    @task
    def use() -> float:
        store = opened()
        amounts = [int(part["amount"].sum()) for part in store.get_by_name("orders")]
        return float(store.get_by_name("rates")["rate"].sum() * sum(amounts))

    session = "example_sensors/{{ run_id }}"
    rates = EntrepotObjectSensor(task_id="rates", name="rates", session=session, deferrable=True, timeout=600)
    orders = EntrepotCollectionSensor(
        task_id="orders", name="orders", members=3, session=session, deferrable=True, timeout=600
    )
    put()
    [rates, orders] >> use()  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]


example_sensors()
