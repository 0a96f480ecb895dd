"""Options of single values, results of mapped tasks, and a result that may be larger than memory."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pendulum
from airflow.sdk import dag, get_current_context, task
from entrepot_airflow import store_options, stored
from entrepot_airflow.hooks.entrepot import EntrepotHook


@dag(schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"))
def example_values() -> None:
    @task
    @store_options(name="orders", ttl="7d")  # read by name in this session, for a week after its last use
    def load() -> Any:
        return pd.DataFrame({"month": [1, 1, 2, 3], "amount": [10, 20, 30, 40]})

    @task(multiple_outputs=True)
    def summarize(orders: Any) -> dict[str, Any]:
        by_month = orders.groupby("month", as_index=False).sum()
        # The table goes to the store however small it is; the list stays in Airflow's database however long it is.
        return {
            "table": stored(by_month, inline=False),
            "amounts": stored(by_month["amount"].tolist(), inline=True),
        }

    @task
    def months(orders: Any) -> list[int]:
        return sorted({int(month) for month in orders["month"]})

    @task
    def of_month(month: int, orders: Any) -> Any:
        return orders[orders["month"] == month]

    @task
    def count(parts: Any) -> int:
        return sum(len(part) for part in parts)  # one table at a time is mapped, with few requests to Airflow

    @task
    def in_parts(orders: Any) -> Any:
        """A collection: written and read a member at a time, and passed on by reference as a whole."""
        context: Any = get_current_context()
        store = EntrepotHook(session=f"example_values/{context['run_id']}").get_conn()
        parts = store.collection("parts")
        for index, (_, part) in enumerate(orders.groupby("month")):
            parts.put(part, index=index)
        return parts.seal()

    @task
    def total(parts: Any) -> int:
        return sum(int(part["amount"].sum()) for part in parts)

    orders = load()
    summarize(orders)
    count(of_month.partial(orders=orders).expand(month=months(orders)))
    total(in_parts(orders))


example_values()
