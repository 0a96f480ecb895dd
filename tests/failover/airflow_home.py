"""One ``airflow standalone`` for all cases, with each task in its own process."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

from examples.flights.airflow_host import PATIENCE, Api, busy, settings
from examples.flights.processes import Child, DemoError, free_port, tail

START_SECONDS = 480.0
RUN_SECONDS = 600.0
ROOT = Path(__file__).resolve().parents[2]


def environment(home: Path, dags: Path, port: int, more: Mapping[str, str]) -> dict[str, str]:
    """Return Airflow's configuration, entirely as environment variables."""
    return (
        os.environ
        | settings(home, port, dags)
        | {
            # standalone starts its components by command name
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "AIRFLOW__CORE__PARALLELISM": "3",
            "AIRFLOW__CORE__XCOM_BACKEND": "entrepot_airflow.EntrepotXComBackend",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        | dict(more)
    )


@contextmanager
def running(home: Path, dags: Path, more: Mapping[str, str], good: Set[str]) -> Iterator[Home]:
    """Run an Airflow that has loaded all DAGs of a directory; stop it on exit.

    Args:
        home: its directory.
        dags: directory of the DAG files, one DAG each.
        more: further environment variables, including its database.
        good: IDs of the DAGs.
    """
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "airflow", "standalone"]
    variables = environment(home, dags, port, more)
    with Child("Airflow", command, log=home / "standalone.log", environment=variables, folder=home) as child:
        one = Home(child, Api(port), home)
        child.wait_for(one.healthy, "a healthy scheduler", START_SECONDS)
        child.wait_for(lambda: one.knows(good), f"the DAGs {', '.join(sorted(good))}", START_SECONDS)
        yield one


class Home:
    """A running Airflow, created by :func:`running`."""

    def __init__(self, child: Child, api: Api, home: Path) -> None:
        self._child = child
        self._api = api
        self.folder = home

    def healthy(self) -> bool:
        return self._api.healthy()

    def import_errors(self) -> list[str]:
        """Stack traces of DAG files that failed to import."""
        return [one["stack_trace"] for one in self._api.ask("/api/v2/importErrors")["import_errors"]]

    def knows(self, good: Set[str]) -> bool:
        """Return whether all DAG files have been processed.

        Raises:
            DemoError: one of them cannot be imported.
        """
        try:
            self._api.log_in()
            known = {one["dag_id"] for one in self._api.call("/api/v2/dags?limit=100")["dags"]}
            errors = self.import_errors()
        except (OSError, HTTPException, ValueError):
            return False
        if errors:
            raise DemoError("\n".join(errors))
        return known >= good

    def start(self, dag_id: str) -> str:
        """Start a run and return its ID. We choose the ID, so that the request can be repeated if the server fails."""
        run = f"case-{dag_id}"
        self._api.begin(dag_id, run)
        return run

    def clear(self, dag_id: str, run: str, task_id: str) -> None:
        """Clear one task of a finished run and its downstream tasks, like a user."""
        body = {"dry_run": False, "dag_run_id": run, "task_ids": [task_id], "only_failed": False}
        more = {"reset_dag_runs": True, "include_downstream": True}
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._api.call(f"/api/v2/dags/{dag_id}/clearTaskInstances", body | more)
                return
            except (OSError, HTTPException) as error:
                if not busy(error) or time.monotonic() > end:
                    raise
            # The request failed before or after it cleared the task; clearing a task that is already running would end
            # it.
            if self._task(dag_id, run, task_id)["state"] != "failed":
                return
            time.sleep(0.5)

    def wait_for_end(self, dag_id: str, run: str) -> str:
        """Wait for the end of a run; return its state."""
        state = ""

        def ended() -> bool:
            nonlocal state
            state = str(self._api.ask(f"/api/v2/dags/{dag_id}/dagRuns/{run}")["state"])
            return state in ("success", "failed")

        self._child.wait_for(ended, f"the end of {dag_id}", RUN_SECONDS, interval=0.25)
        return state

    def wait_for(self, ready: Callable[[], bool], what: str) -> None:
        """Wait for something that happens after a run."""
        self._child.wait_for(ready, what, RUN_SECONDS, interval=0.1)

    def entry(self, dag_id: str, run: str, task_id: str, key: str = "return_value") -> Any:
        """Return what Airflow's database stores in place of a value."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}/xcomEntries/{key}"
        value = self._api.ask(path)["value"]
        return json.loads(value) if isinstance(value, str) else value

    def tries(self, dag_id: str, run: str, task_id: str) -> int:
        """Number of a task's last try."""
        return int(self._task(dag_id, run, task_id)["try_number"])

    def retries_left(self, dag_id: str, run: str, task_id: str) -> int:
        """Number of retries that a task has left."""
        found = self._task(dag_id, run, task_id)
        return int(found["max_tries"]) + 1 - int(found["try_number"])

    def log(self, dag_id: str, run: str, task_id: str) -> str:
        """Logs of all attempts of a task."""
        folder = self.folder / "logs" / f"dag_id={dag_id}" / f"run_id={run}" / f"task_id={task_id}"
        return "\n".join(path.read_text() for path in sorted(folder.rglob("*.log")))

    def told(self) -> str:
        """End of Airflow's own log."""
        return tail(self._child.log, 60)

    def _task(self, dag_id: str, run: str, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._api.ask(f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}")
        return found
