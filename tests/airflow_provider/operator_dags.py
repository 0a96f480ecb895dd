"""DAGs with the provider's operators, sensors and options for values; run as a script, executes them all.

Values lie in the folder that FILES names; each step returns states and what Airflow's database has.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import pendulum
from airflow.sdk import DAG, Asset, get_current_context, task
from entrepot_airflow import store_options, stored
from entrepot_airflow.hooks.entrepot import EntrepotHook
from entrepot_airflow.operators.entrepot import (
    EntrepotCheckpointOperator,
    EntrepotEvictOperator,
    EntrepotExportOperator,
    EntrepotImportOperator,
    EntrepotRestoreOperator,
)
from entrepot_airflow.sensors.entrepot import EntrepotCollectionSensor, EntrepotObjectSensor
from recorded_steps import Recorder

START = pendulum.datetime(2026, 1, 1, tz="UTC")
FOLDER = Path(os.environ["FILES"])
CHECKPOINT = str(FOLDER / "checkpoints" / "{{ run_id }}")


def frame() -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(10_000), "y": np.arange(10_000) / 2})


with DAG("operators", schedule=None, start_date=START) as operators:

    @task
    def load() -> Any:
        return frame()

    @task
    def small() -> int:
        return 7

    @task
    def total(table: Any) -> int:
        return int(table.to_pandas()["x"].sum() if hasattr(table, "to_pandas") else table["x"].sum())

    @task
    def restored() -> int:
        context: Any = get_current_context()
        ti = context["ti"]
        store = EntrepotHook(session=f"restored/{ti.run_id}").get_conn()
        return len(store.get_by_name("operators/load/return_value"))

    loaded: Any = load()
    export = EntrepotExportOperator(task_id="export", from_task="load", url=str(FOLDER / "files" / "x.parquet"))
    imported: Any = EntrepotImportOperator(task_id="read", url=str(FOLDER / "files" / "x.parquet"), name="again")
    saved_load = EntrepotCheckpointOperator(task_id="one", from_task="load", url=f"{CHECKPOINT}/one")
    saved_run = EntrepotCheckpointOperator(task_id="whole", url=f"{CHECKPOINT}/whole")
    evict = EntrepotEvictOperator(task_id="evict", from_task="load")
    restore = EntrepotRestoreOperator(
        task_id="restore", url=f"{CHECKPOINT}/one", session="restored/{{ run_id }}", entrepot_conn_id="store"
    )
    inline = EntrepotExportOperator(task_id="inline", from_task="small", url=str(FOLDER / "files" / "small.csv"))
    loaded >> export >> imported >> saved_run >> evict  # pyright: ignore[reportUnusedExpression]
    loaded >> saved_load >> restore >> restored()  # pyright: ignore[reportUnusedExpression]
    small() >> inline  # pyright: ignore[reportUnusedExpression]
    total(imported.output)


with DAG("options", schedule=None, start_date=START) as options:

    @task
    @store_options(name="orders", locality_set={"name": "features", "reading": "random"}, ttl="7d")
    def decorated() -> Any:
        return frame()

    @task(multiple_outputs=True)
    def several() -> dict[str, Any]:
        return {"here": stored(list(range(5000)), inline=True), "there": stored({"a": 1}, inline=False, name="there")}

    @task
    def not_plain() -> Any:
        return stored(frame(), inline=True)

    @task
    def use(table: Any, numbers: Any, mapping: Any) -> list[Any]:
        return [type(table).__name__, len(numbers), mapping]

    values: Any = several()
    use(decorated(), values["here"], values["there"])
    not_plain()


class Sensor(EntrepotObjectSensor):
    """A sensor that says when it has looked."""

    def poke(self, context: Any) -> Any:
        seen = super().poke(context)
        (FOLDER / f"{self.dag_id} has looked").touch()
        return seen


def sensing(dag_id: str, **arguments: Any) -> DAG:
    """A DAG that waits for what :func:`put_later` puts."""
    with DAG(dag_id, schedule=None, start_date=START) as dag:
        Sensor(task_id="object", name=f"{dag_id} object", timeout=60, poke_interval=0.05, **arguments)
        EntrepotCollectionSensor(
            task_id="collection", name=f"{dag_id} parts", members=2, timeout=60, poke_interval=0.05, **arguments
        )
        EntrepotCollectionSensor(task_id="wrong", name=f"{dag_id} object", timeout=60, poke_interval=0.05, **arguments)
    return dag


sensors, deferred = sensing("sensors", deferrable=False), sensing("deferred", deferrable=True)


def put_later(dag_id: str) -> None:
    """What the sensors wait for, once one has looked for it."""
    end = time.monotonic() + 60
    while not (FOLDER / f"{dag_id} has looked").exists() and time.monotonic() < end:  # Airflow loads this file again
        time.sleep(0.01)
    with entrepot.connect(scope="tests") as store:
        store.put(1, name=f"{dag_id} object")
        for index in range(2):
            store.collection(f"{dag_id} parts").put(np.zeros(10), index=index)
        store.collection(f"{dag_id} parts").seal(2)


def entries(dag_id: str) -> dict[str, Any]:
    """Content of Airflow's database, by task and key."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.scalars(select(XComModel).where(XComModel.dag_id == dag_id)).all()
        return {f"{row.task_id}.{row.key}": row.value for row in rows}


def run_dag(dag: DAG) -> dict[str, Any]:
    run = dag.test()
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    return {"states": states, "entries": entries(dag.dag_id), "run_id": run.run_id}


def run_sensors(dag: DAG) -> dict[str, Any]:
    putting = threading.Thread(target=put_later, args=(dag.dag_id,))
    putting.start()
    try:
        return run_dag(dag)
    finally:
        putting.join()


def provider() -> dict[str, Any]:
    """What Airflow has of the provider's metadata."""
    from airflow.providers_manager import ProvidersManager
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    manager.initialize_providers_hooks()
    runtime = ProvidersManagerTaskRuntime()  # type: ignore[no-untyped-call]
    form = manager.hooks["entrepot"]
    asset = Asset("entrepot://production/-/orders")
    refused = ""
    try:
        Asset("entrepot://production/orders")
    except ValueError as error:
        refused = str(error)
    return {
        "hook": form and [form.hook_class_name, form.hook_name],
        "fields": sorted(name for name in manager._connection_form_widgets if name.startswith("extra__entrepot")),
        "hooks of tasks": "entrepot" in runtime.hooks,
        "asset": asset.normalized_uri,
        "refused": refused,
        "tested": list(EntrepotHook("store").test_connection()),
        "away": list(EntrepotHook("away").test_connection()),
    }


def main() -> None:
    recorder = Recorder(Path(sys.argv[1]))
    recorder.run("provider", provider)
    for dag in (operators, options):
        recorder.run(dag.dag_id, partial(run_dag, dag))
    for dag in (sensors, deferred):
        recorder.run(dag.dag_id, partial(run_sensors, dag))


if __name__ == "__main__":
    main()
