"""One ``airflow standalone`` for all cases, with every task in a process of its own."""

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
    """Airflow's configuration, all of it as variables."""
    return (
        os.environ
        | settings(home, port, dags)
        | {
            # standalone starts its parts by the name of the command
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "AIRFLOW__CORE__PARALLELISM": "3",
            "AIRFLOW__CORE__XCOM_BACKEND": "entrepot_airflow.EntrepotXComBackend",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        | dict(more)
    )


@contextmanager
def running(home: Path, dags: Path, more: Mapping[str, str], good: Set[str]) -> Iterator[Home]:
    """An Airflow that knows all DAGs of a folder; ended with the block.

    Args:
        home: its folder.
        dags: of the DAG files, one DAG each.
        more: of its environment, with its database.
        good: their IDs.
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
    """A running Airflow; :func:`running` makes it."""

    def __init__(self, child: Child, api: Api, home: Path) -> None:
        self._child = child
        self._api = api
        self.folder = home

    def healthy(self) -> bool:
        return self._api.healthy()

    def import_errors(self) -> list[str]:
        """What DAG files could not be imported for."""
        return [one["stack_trace"] for one in self._api.ask("/api/v2/importErrors")["import_errors"]]

    def knows(self, good: Set[str]) -> bool:
        """Whether all DAG files were looked at.

        Raises:
            DemoError: one cannot be imported.
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
        """Begin a run; its ID. One of our own, so that a server that fails can be asked again."""
        run = f"case-{dag_id}"
        self._api.begin(dag_id, run)
        return run

    def clear(self, dag_id: str, run: str, task_id: str) -> None:
        """Have one task of an ended run run again, and what comes after it, as a user would."""
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
            # It failed before it cleared anything, or after: clearing what runs again already would end that.
            if self._task(dag_id, run, task_id)["state"] != "failed":
                return
            time.sleep(0.5)

    def wait_for_end(self, dag_id: str, run: str) -> str:
        """Wait for the end of a run; its state."""
        state = ""

        def ended() -> bool:
            nonlocal state
            state = str(self._api.ask(f"/api/v2/dags/{dag_id}/dagRuns/{run}")["state"])
            return state in ("success", "failed")

        self._child.wait_for(ended, f"the end of {dag_id}", RUN_SECONDS, interval=0.25)
        return state

    def wait_for(self, ready: Callable[[], bool], what: str) -> None:
        """Wait for something that comes after a run."""
        self._child.wait_for(ready, what, RUN_SECONDS, interval=0.1)

    def entry(self, dag_id: str, run: str, task_id: str, key: str = "return_value") -> Any:
        """What Airflow's database has in place of a value."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}/xcomEntries/{key}"
        value = self._api.ask(path)["value"]
        return json.loads(value) if isinstance(value, str) else value

    def tries(self, dag_id: str, run: str, task_id: str) -> int:
        """Which try of a task was its last."""
        return int(self._task(dag_id, run, task_id)["try_number"])

    def retries_left(self, dag_id: str, run: str, task_id: str) -> int:
        """How many retries a task had not used."""
        found = self._task(dag_id, run, task_id)
        return int(found["max_tries"]) + 1 - int(found["try_number"])

    def log(self, dag_id: str, run: str, task_id: str) -> str:
        """All attempts of a task, as their logs have them."""
        folder = self.folder / "logs" / f"dag_id={dag_id}" / f"run_id={run}" / f"task_id={task_id}"
        return "\n".join(path.read_text() for path in sorted(folder.rglob("*.log")))

    def told(self) -> str:
        """The end of what Airflow itself said."""
        return tail(self._child.log, 60)

    def _task(self, dag_id: str, run: str, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._api.ask(f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}")
        return found
