"""Fixtures of the provider's tests: a real Airflow that runs a file of DAGs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def run_dags(
    module_daemon: Any, airflow_database: Callable[[], dict[str, str]]
) -> Callable[..., tuple[dict[str, Any], str]]:
    """``run_dags(dags, home, **variables)``: run a DAG program with a new database and the module's store.

    Returns the content of the program's ``found.json``, and its output.
    """

    def run(dags: Path, home: Path, **variables: str) -> tuple[dict[str, Any], str]:
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
        command = [sys.executable, str(dags), str(home / "found.json")]
        process = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=600)
        output = process.stdout + process.stderr
        assert process.returncode == 0, output[-20_000:]
        return json.loads((home / "found.json").read_text()), output

    return run
