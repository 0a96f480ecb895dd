"""The measurements of ``python -m benchmarks airflow``."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from examples.flights import on_airflow, store_process
from examples.flights.runs import RunConfig
from examples.flights.transports import TRANSPORTS

BACKEND = on_airflow.BACKENDS["entrepot"]
STORE_BYTES = 512 << 20
UNCOUNTED = 2
PROGRAM_SECONDS = 120
# What a task's process imports before it knows its task: configuration, policies, listeners of plugins, the runner, and
# the XCom backend. Both programs look through the installed packages in the same way; one passes over this package.
IMPORTS = """
import importlib.metadata, sys, time
import importlib_metadata
hidden = sys.argv[1]

def hide(module):
    every = module.distributions
    module.distributions = lambda **context: (
        package for package in every(**context) if package.metadata["Name"] != hidden
    )

hide(importlib.metadata)
hide(importlib_metadata)
begin = time.perf_counter()
import airflow.settings
airflow.settings.initialize()
from airflow.sdk.execution_time import task_runner
from airflow.sdk.listener import get_listener_manager
get_listener_manager()
from airflow.sdk.execution_time.xcom import XCom
seconds = time.perf_counter() - begin
assert (XCom.__name__ == "EntrepotXComBackend") == (not hidden), XCom
assert any(name.startswith("entrepot") for name in sys.modules) == (not hidden)
print(seconds)
"""


@dataclass(frozen=True)
class Imports:
    """Seconds until a task's process has imported Airflow, with and without the provider, in each round."""

    without: list[float]
    with_provider: list[float]

    @property
    def added(self) -> float:
        """Median of the rounds' differences."""
        return statistics.median(mine - plain for mine, plain in zip(self.with_provider, self.without, strict=True))


def measure_imports(rounds: int) -> Imports:
    """Start interpreters that import Airflow, with and without the provider in turn."""
    imports = Imports([], [])
    with tempfile.TemporaryDirectory() as home:
        plain = _plain_environment() | {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        for number in range(UNCOUNTED + rounds):
            without = _seconds("entrepot", plain)
            with_provider = _seconds("", plain | {"AIRFLOW__CORE__XCOM_BACKEND": BACKEND})
            if number >= UNCOUNTED:  # the first ones read from disk, and write configuration and byte code
                imports.without.append(without)
                imports.with_provider.append(with_provider)
    return imports


def _seconds(hidden: str, environment: dict[str, str]) -> float:
    command = [sys.executable, "-W", "ignore", "-c", IMPORTS, hidden]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"Airflow cannot be imported:\n{done.stderr}")
    return float(done.stdout.splitlines()[-1])


def _plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "ENTREPOT_"))}


@dataclass(frozen=True)
class Mapped:
    """Reading the results of a mapped task.

    Attributes:
        seconds: for all of them, in each round.
        row_bytes: size of the largest row of Airflow's database that stands for one.
    """

    seconds: list[float]
    row_bytes: int


def measure_mapped(work: Path, tables: int, rounds: int) -> Mapped:
    """Run a DAG with mapped tasks in a real Airflow, once for each round.

    Raises:
        DemoError: Airflow does not start, or a run fails.
        ValueError: the last task got other tables.
    """
    transport = next(each for each in TRANSPORTS if (each.orchestrator, each.name) == ("airflow", "entrepot"))
    address = f"unix://{work}/store.sock"
    config = RunConfig(1, None, work, address, 900.0, lambda line: print(line, file=sys.stderr, flush=True))
    settings = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).with_name("dags")),
        "AIRFLOW__CORE__XCOM_BACKEND": BACKEND,
    }
    dag = on_airflow.dag_id(transport)
    seconds: list[float] = []
    rows: list[int] = []
    with (
        store_process.running(config, address, size=STORE_BYTES),
        on_airflow.running(config, [transport], settings=settings) as airflow,
    ):
        for number in range(rounds):
            finished = airflow.run_dag(dag, f"run-{number}", {"tables": tables})
            report = json.loads(airflow.xcom_entry(finished.path, "read"))
            if report["total"] != tables * (tables - 1) // 2:
                raise ValueError(f"the last task read tables that sum up to {report['total']}")
            seconds.append(report["seconds"])
            entries = [airflow.xcom_entry(finished.path, "table", index) for index in range(tables)]
            rows += [len(entry.encode()) for entry in entries]
    return Mapped(seconds, max(rows))
