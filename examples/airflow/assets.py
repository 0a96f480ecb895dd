"""An asset that is an object of the store: one DAG puts it, which starts the other."""

from __future__ import annotations

import pandas as pd
import pendulum
from airflow.sdk import dag, task
from entrepot_airflow.assets import create_asset
from entrepot_airflow.hooks.entrepot import EntrepotHook

ORDERS = create_asset(scope="example", name="orders")


@dag(schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"))
def example_assets() -> None:
    @task(outlets=[ORDERS])
    def put() -> None:
        # In the scope's own session, which outlives runs.
        store = EntrepotHook().get_conn()
        store.put(pd.DataFrame({"amount": [10, 20]}), name="orders", replace=True)

    put()


@dag(schedule=[ORDERS], start_date=pendulum.datetime(2026, 1, 1, tz="UTC"))
def example_assets_read() -> None:
    @task
    def total() -> int:
        return int(EntrepotHook().get_conn().get_by_name("orders")["amount"].sum())

    total()


example_assets()
example_assets_read()
