"""Airflow: one ``airflow standalone`` with its own home directory, which runs one DAG run per fault."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from examples.failover.runs import RunConfig, RunJob
from examples.flights.on_airflow import START_TIMEOUT, AirflowApi, airflow_settings
from examples.flights.processes import Child, DemoError, free_port, tail
from examples.flights.runs import ROOT

DAG = "failover"


@contextmanager
def running(config: RunConfig) -> Iterator[RunJob]:
    """Context with a running Airflow; yields a function that triggers the DAG.

    Raises:
        DemoError: it does not start.
    """
    home = config.work / "airflow"
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    variables = config.environment() | airflow_settings(home, port, ROOT / "examples/failover/airflow_dags")
    variables["AIRFLOW__CORE__XCOM_BACKEND"] = "entrepot_airflow.EntrepotXComBackend"
    command = [sys.executable, "-m", "airflow", "standalone"]
    with Child("Airflow", command, log=home / "standalone.log", environment=variables, folder=home) as child:
        api = AirflowApi(port)
        child.wait_for(api.is_healthy, "a healthy scheduler", START_TIMEOUT)
        child.wait_for(lambda: api.has_loaded([DAG]), f"the DAG {DAG}", START_TIMEOUT)

        def run(name: str) -> dict[str, Any]:
            conf = {"scale": config.scale, "rows": config.rows}
            path = api.start_run(DAG, name, conf)
            state = api.wait_for_end(child, path, f"the end of {name}", config.timeout)
            if state != "success":
                logs = sorted((home / "logs").rglob(f"*{name}*/**/*.log"), key=lambda log: log.stat().st_mtime)
                raise DemoError(f"Airflow: run {name} failed. End of its last log:\n{tail(logs[-1])}")
            value = api.call_with_retries(f"{path}/taskInstances/report/xcomEntries/return_value")["value"]
            report: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
            return report

        yield run
