"""Airflow: one ``airflow standalone`` with its own home directory, which runs one DAG run per fault."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from examples.failover.runs import Asked, Run
from examples.flights.airflow_host import START_TIMEOUT, Api, settings
from examples.flights.processes import Child, DemoError, free_port, tail
from examples.flights.runs import ROOT

DAG = "failover"


@contextmanager
def running(asked: Asked) -> Iterator[Run]:
    """Context with a running Airflow; yields a function that triggers the DAG.

    Raises:
        DemoError: it does not start.
    """
    home = asked.work / "airflow"
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    variables = asked.environment() | settings(home, port, ROOT / "examples/failover/airflow_dags")
    variables["AIRFLOW__CORE__XCOM_BACKEND"] = "entrepot_airflow.EntrepotXComBackend"
    command = [sys.executable, "-m", "airflow", "standalone"]
    with Child("Airflow", command, log=home / "standalone.log", environment=variables, folder=home) as child:
        api = Api(port)
        child.wait_for(api.healthy, "a healthy scheduler", START_TIMEOUT)
        child.wait_for(lambda: api.knows([DAG]), f"the DAG {DAG}", START_TIMEOUT)

        def run(name: str) -> dict[str, Any]:
            conf = {"scale": asked.scale, "rows": asked.rows}
            path = api.begin(DAG, name, conf)
            state = api.state_at_end(child, path, f"the end of {name}", asked.timeout)
            if state != "success":
                logs = sorted((home / "logs").rglob(f"*{name}*/**/*.log"), key=lambda log: log.stat().st_mtime)
                raise DemoError(f"Airflow: the run {name} failed. The end of its last log:\n{tail(logs[-1])}")
            value = api.ask(f"{path}/taskInstances/report/xcomEntries/return_value")["value"]
            found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
            return found

        yield run
