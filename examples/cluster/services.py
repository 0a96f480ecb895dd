"""What a cluster needs beside its hosts: Redis, and PostgreSQL for Airflow, both as the tests start them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from examples.flights.on_airflow import DATABASE_VARIABLE
from examples.flights.processes import DemoError
from examples.flights.runs import ROOT

_TEST_HELPERS = (ROOT / "tests/databases", ROOT / "tests/cluster/directory/servers")


@dataclass(frozen=True)
class Services:
    """Servers that all hosts use.

    Attributes:
        database: URL of Airflow's database.
        broker, results: URLs of Celery's broker and result backend.
        directory: URL of the cluster's directory.
    """

    database: str
    broker: str
    results: str
    directory: str


@contextmanager
def running() -> Iterator[Services]:
    """Context with the servers: one Redis for Celery and the directory, and a PostgreSQL server.

    The database is the one that DEMO_AIRFLOW_DATABASE names, if it is set.

    Raises:
        DemoError: one of them does not start, or its program is not on this machine.
    """
    for folder in _TEST_HELPERS:
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    import directory_servers
    import postgres_server
    from airflow_databases import AirflowDatabases

    with ExitStack() as stack:
        try:
            redis = stack.enter_context(directory_servers.running("redis"))
            database = os.environ.get(DATABASE_VARIABLE)
            if not database:
                server = stack.enter_context(postgres_server.run_server())
                database = AirflowDatabases(server).new()["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
        except (directory_servers.NoServer, postgres_server.NoPostgres, RuntimeError) as error:
            raise DemoError(str(error)) from error
        address = f"redis://127.0.0.1:{redis.port}"
        yield Services(database, f"{address}/0", f"{address}/1", f"{address}/demo?db=2")
