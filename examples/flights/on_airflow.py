"""Airflow: one ``airflow standalone`` with its own home directory, which runs one DAG run per transport."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.flights.measure.meter import CallTotals, read_calls
from examples.flights.processes import Child, DemoError, free_port, tail
from examples.flights.runs import ROOT, Outcome, RunConfig
from examples.flights.transports import Transport

THRESHOLD_BYTES = 4096  # smaller values stay in Airflow's database, with either backend
START_TIMEOUT = 240.0
RETRY_SECONDS = 60.0  # seconds for which requests to a busy server are retried
DATABASE_VARIABLE = "DEMO_AIRFLOW_DATABASE"  # the variable with its URL
BACKENDS = {
    "entrepot": "entrepot_airflow.EntrepotXComBackend",
    "objectstorage": "airflow.providers.common.io.xcom.backend.XComObjectStorageBackend",
}
_TASKS = ("load", "join", "features", "train", "score", "report")


def dag_id(transport: Transport) -> str:
    """The DAG of a transport."""
    return f"flights_{transport.name}"


def environment(
    config: RunConfig,
    transports: Sequence[Transport],
    home: Path,
    port: int,
    backends: Mapping[str, str] = BACKENDS,
) -> dict[str, str]:
    """Airflow's complete configuration, as variables."""
    xcom = {
        dag_id(transport): {
            "backend": backends[transport.name],
            "meter": str(config.folder(transport) / "meter"),
            "blobs": transport.is_entrepot,
        }
        for transport in transports
    }
    return (
        config.environment()
        | airflow_settings(home, port, ROOT / "examples/flights/airflow_dags")
        | {
            "AIRFLOW__CORE__XCOM_BACKEND": "examples.flights.measured_xcom.MeasuredXCom",
            # Airflow's own transport restores values only of listed classes, and the store would use the same list.
            # What is pickled here, the model, was pickled by a task of the same user.
            "AIRFLOW__CORE__ALLOWED_DESERIALIZATION_CLASSES": "airflow.* pandas.* examples.flights.job.*",
            "AIRFLOW__ENTREPOT__ALLOW_PICKLE": "yes",
            "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_PATH": f"file://{home}/xcom",
            "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_THRESHOLD": str(THRESHOLD_BYTES),
            "AIRFLOW__ENTREPOT__INLINE_BELOW": str(THRESHOLD_BYTES),
            "FLIGHTS_XCOM": json.dumps(xcom),
            "FLIGHTS_DAGS": ",".join(xcom),
        }
    )


def airflow_settings(home: Path, port: int, dags: Path) -> dict[str, str]:
    """Configuration of an Airflow for demonstrations, as variables.

    Its database is SQLite, which allows one writer at a time, or the one named by DEMO_AIRFLOW_DATABASE, as in the
    tests.

    Args:
        home: its home directory.
        port: of its API server on the loopback address.
        dags: the directory of DAGs.
    """
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": os.environ.get(DATABASE_VARIABLE) or f"sqlite:///{home}/airflow.db",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__TRIGGERER__DEFAULT_CAPACITY": "1",
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def is_busy_error(error: BaseException) -> bool:
    """Whether an error of :meth:`Api.call` only means that the server is temporarily unable to answer."""
    return not isinstance(error, urllib.error.HTTPError) or error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR


class AirflowApi:
    """The part of Airflow's REST API that the demo uses.

    Args:
        port: of the API server on the loopback address.
    """

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._token: str | None = None
        # Bypass any proxy from the environment: this is the loopback address.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """GET, or POST ``body``; returns the response.

        Raises:
            OSError: no answer, or an error (``urllib.error.HTTPError``).
        """
        request = urllib.request.Request(self._base + path)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        return json.loads(self._send(request))

    def delete(self, path: str) -> None:
        """DELETE; what is gone already is no error, so that a request that was not answered can be repeated.

        Raises:
            OSError: as for :meth:`call`.
        """
        try:
            self._send(urllib.request.Request(self._base + path, method="DELETE"))
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.NOT_FOUND:
                raise

    def _send(self, request: urllib.request.Request) -> bytes:
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        with self._opener.open(request, timeout=15) as response:
            answer: bytes = response.read()
        return answer

    def call_with_retries(
        self, path: str, body: dict[str, Any] | None = None, *, seconds: float = RETRY_SECONDS
    ) -> Any:
        """:meth:`call` with retries while the server is too busy; for idempotent requests.

        Raises:
            OSError: the server refuses, or does not answer within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                return self.call(path, body)
            except (OSError, http.client.HTTPException) as error:
                if not is_busy_error(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    def start_run(self, dag: str, run: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run with a given ID, so that repeating the request starts only one; returns its path.

        Raises:
            OSError: the server refuses, or does not answer.
        """
        body = {"logical_date": None, "dag_run_id": run, "conf": conf or {}}
        path = f"/api/v2/dags/{dag}/dagRuns"
        try:
            self.call(path, body)
        except (OSError, http.client.HTTPException) as error:
            if not is_busy_error(error):
                raise
            try:
                self.call_with_retries(path, body)
            except urllib.error.HTTPError as retry_error:
                if retry_error.code != http.HTTPStatus.CONFLICT:  # it was started before the server failed
                    raise
        return f"{path}/{urllib.parse.quote(run, safe='')}"

    def log_in(self) -> None:
        """Get a token, which this Airflow gives to everybody."""
        self._token = self.call("/auth/token")["access_token"]

    def is_healthy(self) -> bool:
        """Whether the scheduler and the DAG processor report that they are healthy."""
        try:
            health = self.call("/api/v2/monitor/health")
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return all(health.get(part, {}).get("status") == "healthy" for part in ("scheduler", "dag_processor"))

    def has_loaded(self, dags: Sequence[str]) -> bool:
        """Whether the DAGs are loaded.

        Raises:
            DemoError: Airflow could not import the DAG file.
        """
        try:
            self.log_in()
            loaded = {entry["dag_id"] for entry in self.call("/api/v2/dags?limit=100")["dags"]}
            errors = self.call("/api/v2/importErrors")["import_errors"]
        except urllib.error.HTTPError:
            return False
        if errors:
            raise DemoError(f"Airflow cannot import {errors[0]['filename']}:\n{errors[0]['stack_trace']}")
        return loaded >= set(dags)

    def wait_for_end(self, child: Child, path: str, description: str, timeout: float) -> str:
        """Wait for the end of a DAG run: ``success`` or ``failed``.

        Args:
            child: Airflow's process.
            path: of the run.
            description: description of what is waited for, for messages.
            timeout: in seconds.

        Raises:
            DemoError: Airflow has exited, or it takes longer.
        """
        state = "queued"

        def ended() -> bool:
            nonlocal state
            try:
                state = self.call(path)["state"]
            except (OSError, http.client.HTTPException) as error:
                if not is_busy_error(error):
                    raise  # wait_for() has a deadline, so busy errors are ignored
            return state in ("success", "failed")

        child.wait_for(ended, description, timeout, interval=0.25)
        return state


@contextmanager
def running(
    config: RunConfig,
    transports: Sequence[Transport],
    *,
    settings: Mapping[str, str] | None = None,
    backends: Mapping[str, str] = BACKENDS,
) -> Iterator[AirflowServer]:
    """Context with an Airflow that is ready to run these transports' DAGs.

    Args:
        config, transports: what it is to run.
        settings: environment variables that replace or supplement its own.
        backends: XCom backend of each transport.

    Raises:
        DemoError: it does not start.
    """
    home = config.work / "airflow"
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    begin = time.monotonic()
    command = [sys.executable, "-m", "airflow", "standalone"]
    variables = environment(config, transports, home, port, backends) | dict(settings or {})
    with Child("Airflow", command, log=home / "standalone.log", environment=variables, folder=home) as child:
        api = AirflowApi(port)
        dags = [dag_id(transport) for transport in transports]
        child.wait_for(api.is_healthy, "a healthy scheduler", START_TIMEOUT)
        child.wait_for(lambda: api.has_loaded(dags), f"the DAGs {', '.join(dags)}", START_TIMEOUT)
        config.print_progress(f"Airflow is up after {time.monotonic() - begin:.0f} s")
        yield AirflowServer(config, child, api, home)


@dataclass(frozen=True)
class FinishedRun:
    """A DAG run that has succeeded.

    Attributes:
        path: of the run, in the API.
        seconds: its duration.
        begin, end: in seconds since the epoch.
    """

    path: str
    seconds: float
    begin: float
    end: float


class AirflowServer:
    """A running Airflow, created by :func:`running`."""

    def __init__(self, config: RunConfig, child: Child, api: AirflowApi, home: Path) -> None:
        self._config = config
        self._child = child
        self._api = api
        self._home = home

    @property
    def pid(self) -> int:
        """The root of this Airflow's process tree."""
        return self._child.pid

    def run(self, transport: Transport) -> Outcome:
        """Run the job.

        Raises:
            DemoError: it failed, or took too long; with the end of the failed task's log.
        """
        conf = {"scale": self._config.scale, "rows": self._config.rows}
        finished = self.run_dag(dag_id(transport), f"demo-{dag_id(transport)}", conf)
        travelled = {task: self.xcom_entry(finished.path, task) for task in _TASKS}
        report = json.loads(travelled.pop("report"))
        sums = CallTotals.of(read_calls(self._config.folder(transport) / "meter"))
        return Outcome(transport, report, finished.seconds, finished.begin, finished.end, sums, travelled)

    def run_dag(self, dag: str, run: str, conf: dict[str, Any]) -> FinishedRun:
        """Run a DAG to its successful end.

        Args:
            dag: its ID.
            run: the run's ID, not used before.
            conf: of the run.

        Raises:
            DemoError: it failed, or took too long; with the end of the failed task's log.
        """
        begin, clock = time.time(), time.monotonic()
        path = self._api.start_run(dag, run, conf)
        state = self._api.wait_for_end(self._child, path, f"the end of {dag}", self._config.timeout)
        end, seconds = time.time(), time.monotonic() - clock
        if state != "success":
            raise self._failure(dag, run, path)
        return FinishedRun(path, seconds, begin, end)

    def xcom_entry(self, path: str, task: str, map_index: int = -1) -> str:
        """The entry in Airflow's database that stands for the value of a task; of a mapped one, of this instance."""
        entry = f"{path}/taskInstances/{task}/xcomEntries/return_value?map_index={map_index}"
        value = self._api.call_with_retries(entry)["value"]
        return value if isinstance(value, str) else json.dumps(value)

    def _failure(self, dag: str, run: str, path: str) -> DemoError:
        tasks = self._api.call_with_retries(f"{path}/taskInstances")["task_instances"]
        failed = next((entry["task_id"] for entry in tasks if entry["state"] == "failed"), None)
        folder = self._home / "logs" / f"dag_id={dag}" / f"run_id={run}" / f"task_id={failed}"
        logs = sorted(folder.glob("*.log"))
        log_tails = "\n".join(f"{log}:\n{tail(log)}" for log in logs) or f"(no log in {folder})"
        return DemoError(f"Airflow: task {failed} of {dag} failed. End of its log: {log_tails}")
