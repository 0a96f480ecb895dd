"""One ``airflow standalone`` for all cases, with each task in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from examples.flights.on_airflow import RETRY_SECONDS, AirflowApi, airflow_settings, is_busy_error
from examples.flights.processes import Child, DemoError, free_port, tail

START_SECONDS = 480.0
RUN_SECONDS = 600.0
COMMAND_SECONDS = 300.0
ROOT = Path(__file__).resolve().parents[2]


def environment(home: Path, dags: Path, port: int, extra_variables: Mapping[str, str]) -> dict[str, str]:
    """Return Airflow's configuration, entirely as environment variables."""
    return (
        os.environ
        | airflow_settings(home, port, dags)
        | {
            # standalone starts its components by command name
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "AIRFLOW__CORE__PARALLELISM": "3",
            "AIRFLOW__CORE__XCOM_BACKEND": "entrepot_airflow.EntrepotXComBackend",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        | dict(extra_variables)
    )


@contextmanager
def running(home: Path, dags: Path, extra_variables: Mapping[str, str], dag_ids: Set[str]) -> Iterator[AirflowServer]:
    """Run an Airflow that has loaded all DAGs of a directory that can be imported; stop it on exit.

    Args:
        home: its directory.
        dags: directory of the DAG files, one DAG each.
        extra_variables: further environment variables, including its database.
        dag_ids: IDs of the DAGs.
    """
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "airflow", "standalone"]
    variables = environment(home, dags, port, extra_variables)
    with Child("Airflow", command, log=home / "standalone.log", environment=variables, folder=home) as child:
        server = AirflowServer(child, AirflowApi(port), home, variables)
        server.wait_until_ready(dag_ids)
        yield server


@contextmanager
def services(home: Path, dags: Path, extra_variables: Mapping[str, str]) -> Iterator[AirflowServer]:
    """Run an Airflow's services, which may not be ready yet, with any executor: ``standalone`` has one of its own.

    Args:
        home: its directory.
        dags: directory of the DAG files, one DAG each.
        extra_variables: further environment variables, including its database and executor.
    """
    home.mkdir(parents=True, exist_ok=True)
    (home / "airflow.cfg").touch()  # otherwise the first processes would write it, at the same time
    port = free_port()
    variables = environment(home, dags, port, extra_variables)
    with ExitStack() as stack:
        scheduler, *_ = [
            stack.enter_context(
                Child(
                    name,
                    [sys.executable, "-m", "airflow", name],
                    log=home / f"{name}.log",
                    environment=variables,
                    folder=home,
                )
            )
            for name in ("scheduler", "api-server", "dag-processor")
        ]
        yield AirflowServer(scheduler, AirflowApi(port), home, variables)


class AirflowServer:
    """A running Airflow, created by :func:`running` or :func:`services`.

    Attributes:
        folder: its home directory.
        variables: its environment, which its tasks need wherever they run.
    """

    def __init__(self, child: Child, api: AirflowApi, home: Path, variables: Mapping[str, str]) -> None:
        self._child = child
        self._api = api
        self.folder = home
        self.variables = dict(variables)

    def wait_until_ready(self, dag_ids: Set[str]) -> None:
        """Wait until the scheduler runs and all these DAGs have been loaded."""
        self._child.wait_for(self._api.is_healthy, "a healthy scheduler", START_SECONDS)
        self._child.wait_for(lambda: self.has_loaded(dag_ids), f"the DAGs {', '.join(sorted(dag_ids))}", START_SECONDS)

    def import_errors(self) -> dict[str, str]:
        """Stack traces of DAG files that failed to import, by DAG: each file has one and is named after it."""
        errors = self._api.call_with_retries("/api/v2/importErrors")["import_errors"]
        return {Path(error["filename"]).stem: error["stack_trace"] for error in errors}

    def has_loaded(self, dag_ids: Set[str]) -> bool:
        """Return whether all DAG files have been processed; those with import errors only fail their own runs."""
        try:
            self._api.log_in()
            loaded = {dag["dag_id"] for dag in self._api.call("/api/v2/dags?limit=100")["dags"]}
            return loaded | self.import_errors().keys() >= dag_ids
        except (OSError, HTTPException, ValueError):
            return False

    def start_run(self, dag_id: str, run: str = "", conf: dict[str, Any] | None = None) -> str:
        """Start a run and return its ID. We choose the ID, so that the request can be repeated if the server fails.

        Args:
            dag_id: its DAG.
            run: its ID; default: one for the only run of this DAG.
            conf: its configuration.

        Raises:
            DemoError: the DAG file cannot be imported.
        """
        if error := self.import_errors().get(dag_id):
            raise DemoError(f"{dag_id}: {error}")
        run = run or f"case-{dag_id}"
        self._api.start_run(dag_id, run, conf)
        return run

    def run_command(self, *arguments: str) -> str:
        """Run a command of ``airflow``; return its output.

        Raises:
            DemoError: it fails.
        """
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(
            command,
            env=self.variables,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        if done.returncode != 0:
            raise DemoError(f"airflow {' '.join(arguments)}:\n{done.stdout[-10_000:]}")
        return done.stdout

    def runs(self, dag_id: str) -> dict[str, str]:
        """The kinds of a DAG's runs, such as ``backfill``, by their IDs."""
        entries = self._api.call_with_retries(f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]
        return {entry["dag_run_id"]: entry["run_type"] for entry in entries}

    def delete_run(self, dag_id: str, run: str) -> None:
        """Delete a run, like a user."""
        self._api.delete(f"/api/v2/dags/{dag_id}/dagRuns/{run}")

    def begin_and_end(self, dag_id: str, run: str) -> tuple[datetime, datetime]:
        """When a run that has ended began and ended."""
        entry = self._api.call_with_retries(f"/api/v2/dags/{dag_id}/dagRuns/{run}")
        return datetime.fromisoformat(entry["start_date"]), datetime.fromisoformat(entry["end_date"])

    def task_states(self, dag_id: str, run: str) -> dict[str, str]:
        """States of a run's tasks that are not mapped."""
        instances = self._api.call_with_retries(f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances")["task_instances"]
        return {entry["task_id"]: entry["state"] for entry in instances if entry["map_index"] < 0}

    def clear_task(self, dag_id: str, run: str, task_id: str) -> None:
        """Clear one task of a finished run and its downstream tasks, like a user."""
        state = self._task_instance(dag_id, run, task_id)["state"]
        body = {"dry_run": False, "dag_run_id": run, "task_ids": [task_id], "only_failed": False}
        options = {"reset_dag_runs": True, "include_downstream": True}
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            try:
                self._api.call(f"/api/v2/dags/{dag_id}/clearTaskInstances", body | options)
                return
            except (OSError, HTTPException) as error:
                if not is_busy_error(error) or time.monotonic() > deadline:
                    raise
            # The request failed before or after it cleared the task; clearing a task that is already running would end
            # it.
            if self._task_instance(dag_id, run, task_id)["state"] != state:
                return
            time.sleep(0.5)

    def wait_for_end(self, dag_id: str, run: str) -> str:
        """Wait for the end of a run; return its state."""
        state = ""

        def ended() -> bool:
            nonlocal state
            state = str(self._api.call_with_retries(f"/api/v2/dags/{dag_id}/dagRuns/{run}")["state"])
            return state in ("success", "failed")

        self._child.wait_for(ended, f"the end of {dag_id}", RUN_SECONDS, interval=0.25)
        return state

    def wait_for(self, ready: Callable[[], bool], description: str) -> None:
        """Wait for something that happens after a run."""
        self._child.wait_for(ready, description, RUN_SECONDS, interval=0.1)

    def xcom_entry(self, dag_id: str, run: str, task_id: str, key: str = "return_value") -> Any:
        """Return what Airflow's database stores in place of a value."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}/xcomEntries/{key}"
        value = self._api.call_with_retries(path)["value"]
        return json.loads(value) if isinstance(value, str) else value

    def try_number(self, dag_id: str, run: str, task_id: str) -> int:
        """Number of a task's last try."""
        return int(self._task_instance(dag_id, run, task_id)["try_number"])

    def retries_left(self, dag_id: str, run: str, task_id: str) -> int:
        """Number of retries that a task has left."""
        task_instance = self._task_instance(dag_id, run, task_id)
        return int(task_instance["max_tries"]) + 1 - int(task_instance["try_number"])

    def task_log(self, dag_id: str, run: str, task_id: str) -> str:
        """Logs of all attempts of a task."""
        folder = self.folder / "logs" / f"dag_id={dag_id}" / f"run_id={run}" / f"task_id={task_id}"
        return "\n".join(path.read_text() for path in sorted(folder.rglob("*.log")))

    def log_tail(self) -> str:
        """End of Airflow's own log."""
        return tail(self._child.log, 60)

    def _task_instance(self, dag_id: str, run: str, task_id: str) -> dict[str, Any]:
        task_instance: dict[str, Any] = self._api.call_with_retries(
            f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}"
        )
        return task_instance
