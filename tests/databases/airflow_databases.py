"""Databases for Airflow: one per test, all copied from a template that ``airflow db migrate`` created."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from itertools import count

from postgres_server import Server

TEMPLATE = "airflow_template"
MIGRATE_SECONDS = 240.0


class AirflowDatabases:
    """Creates Airflow databases in a PostgreSQL server.

    Args:
        server: the server that holds the databases.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._numbers = count()
        self._migrated = False

    def new(self) -> dict[str, str]:
        """Create a database with Airflow's tables, all empty; returns environment variables.

        Raises:
            NoPostgres, RuntimeError: the database cannot be created.
        """
        if not self._migrated:
            self._migrate()
        name = f"airflow_{next(self._numbers)}"
        self._server.create(name, TEMPLATE)
        return self._variables(name)

    def _migrate(self) -> None:
        self._server.create(TEMPLATE)
        with tempfile.TemporaryDirectory(prefix="am-") as home:
            variables = {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"} | self._variables(TEMPLATE)
            done = subprocess.run(
                [sys.executable, "-m", "airflow", "db", "migrate"],
                env=os.environ | variables,
                cwd=home,
                capture_output=True,
                text=True,
                timeout=MIGRATE_SECONDS,
            )
        if done.returncode != 0:
            raise RuntimeError(f"airflow db migrate:\n{(done.stdout + done.stderr)[-20_000:]}")
        self._migrated = True

    def _variables(self, name: str) -> dict[str, str]:
        return {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self._server.url(name),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": self._server.url(name, "asyncpg"),
        }
