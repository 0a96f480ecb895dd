"""Fixtures of the provider's tests: a real Airflow that runs a file of DAGs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_steps import StepResults, run_program


@pytest.fixture(scope="module")
def run_dags(module_daemon: Any, airflow_database: Callable[[], dict[str, str]]) -> Callable[..., StepResults]:
    """``run_dags(dags, home, **variables)``: run a DAG program with a new database and the module's store."""

    def run(dags: Path, home: Path, **variables: str) -> StepResults:
        environment = (
            os.environ
            | airflow_database()
            | {
                "AIRFLOW_HOME": str(home),
                "AIRFLOW__CORE__XCOM_BACKEND": "entrepot_airflow.EntrepotXComBackend",
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW__ENTREPOT__SCOPE": "tests",
                "ENTREPOT_ADDRESS": module_daemon.address,
            }
            | variables
        )
        file = home / "found.json"
        return run_program([sys.executable, str(dags), str(file)], file, environment=environment, folder=home)

    return run
