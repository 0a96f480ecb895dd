"""Tasks of two users, in an ``airflow standalone``; run as a script, executes them: ``run_as_user_dags.py FILE USER``.

It has to be root, to start a task as USER by sudo, and in a place where USER may read this file and Python.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pendulum
from airflow.sdk import DAG, task

OTHER_USER = os.environ["OTHER_USER"]
STORE_OF_AIRFLOW = os.environ["STORE_OF_AIRFLOW"]

with DAG("users", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as users:

    @task
    def make() -> Any:
        return np.arange(5000)

    @task
    def make_plain() -> dict[str, int]:
        return {"uid": os.getuid()}

    @task(run_as_user=OTHER_USER)
    def read(values: Any) -> int:
        return len(values)

    @task(run_as_user=OTHER_USER)
    def read_plain(value: Any) -> list[int]:
        return [value["uid"], os.getuid()]

    @task(run_as_user=OTHER_USER)
    def make_own() -> Any:
        return np.arange(4000)

    @task(run_as_user=OTHER_USER)
    def read_own(values: Any) -> list[int]:
        return [len(values), os.getuid()]

    @task(run_as_user=OTHER_USER)
    def make_at_address() -> Any:
        os.environ["ENTREPOT_ADDRESS"] = STORE_OF_AIRFLOW
        return np.arange(3000)

    read(make())
    read_plain(make_plain())
    read_own(make_own())
    make_at_address()

TASKS = ("make", "make_plain", "read", "read_plain", "make_own", "read_own", "make_at_address")


def run(home: Path) -> dict[str, Any]:
    """Run the DAG; return its tasks' states, values and logs."""
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root), str(root / "tests" / "failover")]
    import airflow_server

    dags = home / "dags"
    dags.mkdir()
    (dags / "users.py").symlink_to(Path(__file__).resolve())
    with airflow_server.running(home / "airflow", dags, {}, {"users"}) as server:
        run_id = server.start_run("users")
        server.wait_for_end("users", run_id)
        states = server.task_states("users", run_id)
        entries = {
            task_id: server.xcom_entry("users", run_id, task_id) for task_id in TASKS if states[task_id] == "success"
        }
        return {
            "states": states,
            "entries": entries,
            "logs": {task_id: server.task_log("users", run_id, task_id) for task_id in TASKS},
        }


if __name__ == "__main__":
    from recorded_steps import Recorder

    file = Path(sys.argv[1])
    Recorder(file).run("users", lambda: run(file.parent))
