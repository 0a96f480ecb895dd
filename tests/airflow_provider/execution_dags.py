"""DAGs with Airflow's other ways to run a task and to pull; run as a script, executes them all.

Each task records what it observed in READ.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pendulum
from airflow.sdk import DAG, get_current_context, setup, task, teardown
from daemon_of_another_version import DaemonOfAnotherVersion
from entrepot._core import PROTOCOL
from recorded_steps import Recorder

START = pendulum.datetime(2026, 1, 1, tz="UTC")
COMMAND_SECONDS = 300
ANOTHER_VERSION = "ADDRESS_OF_ANOTHER_VERSION"  # the variable with it
PHASES = ("write", "read", "write after read")
READ: dict[str, Any] = {}


def task_instance() -> Any:
    context: Any = get_current_context()
    return context["ti"]


with DAG("surrounded", schedule=None, start_date=START) as surrounded:

    @setup
    def provide() -> Any:
        return np.arange(5000)

    @task
    def break_off(values: Any) -> None:
        READ["work"] = int(values.sum())
        raise RuntimeError("the work fails after it has read its input")

    @teardown
    def remove(values: Any) -> None:
        READ["teardown"] = int(values.sum())

    provided: Any = provide()
    work: Any = break_off(provided)
    provided.set_downstream(work)
    work.set_downstream(remove(provided))


with DAG("dated", schedule=None, start_date=START) as dated:

    @task
    def pull_earlier() -> None:
        ti = task_instance()
        value = ti.xcom_pull(task_ids="number", include_prior_dates=True)
        same_run = ti.xcom_pull(task_ids="number")
        READ.setdefault("earlier", []).append([None if value is None else int(value[0]), same_run is None])

    @task
    def number() -> Any:
        return np.full(5000, READ["round"])

    pulled: Any = pull_earlier()
    pulled.set_downstream(number())


with DAG("asynchronous", schedule=None, start_date=START) as asynchronous:

    @task
    async def produce() -> Any:
        await asyncio.sleep(0)
        return np.full(5000, 3)

    @task
    async def consume(value: Any) -> Any:
        # dag.test(), which runs this, cannot pull or push asynchronously: Airflow 3.3.2 has no `asend` there.
        pulled = await asyncio.to_thread(task_instance().xcom_pull, task_ids="produce")
        READ["awaited"] = [int(value[0]), int(pulled[0])]

    consume(produce())


with DAG("commanded", schedule=None, start_date=START) as commanded:

    @task
    def make() -> Any:
        return np.arange(5000)

    @task
    def write_sum(values: Any) -> None:
        Path(os.environ["SUM_FILE"]).write_text(f"{type(values).__name__} {values.sum()}")

    write_sum(make())


def turn_to_another_version() -> None:
    """From here on, this process finds a store of another version at its address."""
    os.environ["ENTREPOT_ADDRESS"] = os.environ[ANOTHER_VERSION]


def note_failure(context: Any) -> None:
    error = context["exception"]
    READ["failure"] = [context["ti"].task_id, type(error).__name__, str(error)]


def between_versions(phase: str) -> DAG:
    """A DAG whose store is of another version from a phase on: when a task writes, or reads, or has read."""
    dag_id = f"versions_{phase.replace(' ', '_')}"
    with DAG(dag_id, schedule=None, start_date=START, default_args={"on_failure_callback": note_failure}) as dag:

        @task
        def first() -> Any:
            if phase == "write":
                turn_to_another_version()
            return np.arange(5000)

        @task
        def change() -> None:
            if phase == "read":
                turn_to_another_version()

        @task
        def last(values: Any) -> Any:
            READ["read"] = int(values.sum())
            if phase == "write after read":
                turn_to_another_version()
            return values * 2

        made: Any = first()
        changed: Any = change()
        read: Any = last(made)
        made.set_downstream(changed)
        changed.set_downstream(read)
    return dag


VERSIONS = {phase: between_versions(phase) for phase in PHASES}


def run_command() -> Any:
    """``airflow dags test``, whose tasks run in a process of its own."""
    file = Path(tempfile.mkdtemp()) / "sum"
    command = [sys.executable, "-m", "airflow", "dags", "test", "commanded"]
    done = subprocess.run(
        command,
        env=os.environ | {"SUM_FILE": str(file)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-10_000:])
    return file.read_text()


@contextmanager
def store_of_another_version() -> Iterator[None]:
    """Provide one, for :func:`turn_to_another_version`."""
    address = os.environ["ENTREPOT_ADDRESS"]
    with tempfile.TemporaryDirectory(prefix="av-") as folder:  # a short path: a socket's is limited to 107 bytes
        daemon = DaemonOfAnotherVersion(f"{folder}/s", address, (PROTOCOL[0] + 1, 0))
        os.environ[ANOTHER_VERSION] = daemon.address
        try:
            yield
        finally:
            os.environ["ENTREPOT_ADDRESS"] = address
            daemon.close()


def run_between_versions(phase: str) -> dict[str, Any]:
    READ.pop("read", None)
    READ.pop("failure", None)
    with store_of_another_version():
        run = VERSIONS[phase].test()
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    return {"states": states, "failure": READ["failure"], "read": READ.get("read")}


def run_surrounded() -> dict[str, Any]:
    run = surrounded.test()
    return {"states": {ti.task_id: str(ti.state) for ti in run.get_task_instances()}, **READ}


def run_dated() -> Any:
    for day in range(2):
        READ["round"] = day
        dated.test(logical_date=START.add(days=day))
    return READ["earlier"]


def run_asynchronous() -> Any:
    return [str(asynchronous.test().state), READ["awaited"]]


def main() -> None:
    recorder = Recorder(Path(sys.argv[1]))
    recorder.run("surrounded", run_surrounded)
    recorder.run("dated", run_dated)
    recorder.run("asynchronous", run_asynchronous)
    recorder.run("commanded", run_command)
    for phase in PHASES:
        recorder.run(phase, partial(run_between_versions, phase))


if __name__ == "__main__":
    main()
