"""Airflow with the CeleryExecutor: its services on one host, and a worker on each of the others."""

from __future__ import annotations

import base64
import json
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from examples.cluster.hosts import SLOTS, ClusterHost
from examples.cluster.services import Services
from examples.failover.runs import RunConfig
from examples.flights.measure.meter import Call, read_calls
from examples.flights.on_airflow import (
    BACKENDS,
    START_TIMEOUT,
    THRESHOLD_BYTES,
    AirflowApi,
    airflow_settings,
)
from examples.flights.processes import Child, DemoError, free_port, tail
from examples.flights.runs import ROOT
from examples.flights.store_process import capacity_bytes

TRANSPORTS = {"entrepot": "entrepot", "files": "objectstorage"}  # and the backend of each
WORKERS = ("host-a", "host-b")
CONTROL = "control"  # the host of Airflow's own services
CONTROL_BYTES = 64 << 20
HEARTBEAT_SECONDS = 2
LOST_AFTER_SECONDS = 10  # without a heartbeat, Airflow retries a task; its default is 300 s


def dag_id(transport: str) -> str:
    """The DAG of a transport."""
    return f"cluster_{transport}"


def settings(config: RunConfig, services: Services, port: int) -> dict[str, str]:
    """Airflow's complete configuration, as variables; the same on all hosts."""
    home = config.work / "airflow"
    xcom = {
        dag_id(name): {"backend": BACKENDS[backend], "meter": str(config.work / f"meter-{name}"), "blobs": False}
        for name, backend in TRANSPORTS.items()
    }
    return airflow_settings(home, port, ROOT / "examples/cluster/airflow_dags") | {
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__CORE__PARALLELISM": str(SLOTS * len(WORKERS)),
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": services.database,
        "AIRFLOW__CELERY__BROKER_URL": services.broker,
        "AIRFLOW__CELERY__RESULT_BACKEND": services.results,
        "AIRFLOW__CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": str(HEARTBEAT_SECONDS),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(LOST_AFTER_SECONDS),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": str(HEARTBEAT_SECONDS),
        "AIRFLOW__CORE__XCOM_BACKEND": "examples.flights.measured_xcom.MeasuredXCom",
        # As in the flights example: what is pickled, the model, was pickled by a task of the same user.
        "AIRFLOW__CORE__ALLOWED_DESERIALIZATION_CLASSES": "airflow.* pandas.* examples.flights.job.*",
        "AIRFLOW__ENTREPOT__ALLOW_PICKLE": "yes",
        "AIRFLOW__ENTREPOT__INLINE_BELOW": str(THRESHOLD_BYTES),
        "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_PATH": f"file://{config.work}/shared",
        "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_THRESHOLD": str(THRESHOLD_BYTES),
        "FLIGHTS_XCOM": json.dumps(xcom),
        "CLUSTER_DAGS": ",".join(xcom),
    }


class CeleryCluster:
    """A running cluster, created by :func:`running`.

    Attributes:
        workers: the hosts with a Celery worker, by name.
    """

    def __init__(
        self, config: RunConfig, api: AirflowApi, scheduler: Child, workers: Mapping[str, ClusterHost]
    ) -> None:
        self.workers = workers
        self._config = config
        self._api = api
        self._scheduler = scheduler

    def run(self, transport: str, name: str) -> dict[str, Any]:
        """Run the job to its successful end, and return its report.

        Args:
            transport: how its tasks pass values on.
            name: of the run, not used before.

        Raises:
            DemoError: it failed, or took too long; with the ends of its logs.
        """
        conf = {"scale": self._config.scale, "rows": self._config.rows}
        path = self._api.start_run(dag_id(transport), name, conf)
        state = self._api.wait_for_end(self._scheduler, path, f"the end of {name}", self._config.timeout)
        if state != "success":
            raise DemoError(f"Airflow: run {name} failed. Ends of its logs:\n{self._log_tails(name)}")
        value = self._api.call_with_retries(f"{path}/taskInstances/report/xcomEntries/return_value")["value"]
        report: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
        return report

    def calls(self, transport: str) -> list[Call]:
        """What was measured of a transport so far."""
        return read_calls(self._config.work / f"meter-{transport}")

    def _log_tails(self, name: str) -> str:
        logs = sorted((self._config.work / "airflow/logs").rglob(f"*{name}*/**/*.log"))
        return "\n".join(f"{log}:\n{tail(log, 15)}" for log in logs) or f"(no logs of {name})"


@contextmanager
def running(config: RunConfig, services: Services) -> Iterator[CeleryCluster]:
    """Context with a cluster that is ready to run the DAGs.

    Raises:
        DemoError: a part of it does not start.
    """
    home = config.work / "airflow"
    home.mkdir(parents=True, exist_ok=True)
    (home / "airflow.cfg").touch()  # otherwise the first processes would write it, at the same time
    port = free_port()
    variables = config.environment() | settings(config, services, port)

    def host(stack: ExitStack, name: str, nbytes: int) -> ClusterHost:
        return stack.enter_context(ClusterHost(name, config.work, services.directory, nbytes, variables))

    with ExitStack() as stack:
        control = host(stack, CONTROL, CONTROL_BYTES)
        workers = {name: host(stack, name, capacity_bytes(config.scale)) for name in WORKERS}
        threads = stack.enter_context(ThreadPoolExecutor(len(workers) + 1))
        list(threads.map(ClusterHost.start, (control, *workers.values())))
        parts = {
            name: stack.enter_context(
                Child(
                    f"Airflow's {name}",
                    [sys.executable, "-m", "airflow", name],
                    log=home / f"{name}.log",
                    environment=control.environment,
                    folder=home,
                )
            )
            for name in ("api-server", "scheduler", "dag-processor")
        }
        started = [threads.submit(worker.start_worker) for worker in workers.values()]
        api = AirflowApi(port)
        dags: Sequence[str] = [dag_id(name) for name in TRANSPORTS]
        parts["scheduler"].wait_for(api.is_healthy, "a healthy scheduler", START_TIMEOUT)
        parts["dag-processor"].wait_for(lambda: api.has_loaded(dags), f"the DAGs {', '.join(dags)}", START_TIMEOUT)
        for worker_start in started:
            worker_start.result()
        yield CeleryCluster(config, api, parts["scheduler"], workers)
