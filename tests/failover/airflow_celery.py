"""Airflow with the CeleryExecutor: Redis, Airflow's services, and workers, each part in a process of its own.

Two workers share this machine's store. A third, with a queue of its own, is on another host as far as Entrepot can
tell: in a UTS namespace with another host name, with a store that was started there.
"""

from __future__ import annotations

import base64
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster/directory/servers"))

import directory_servers
from airflow_server import START_SECONDS, AirflowServer, services

from examples.flights.processes import Child

WORKERS = ("worker-a", "worker-b")
CONCURRENCY = 2
OTHER_HOST = "other-host"
OTHER_QUEUE = "elsewhere"


def can_name_hosts() -> bool:
    """Whether a process may have a host name of its own here."""
    return subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode == 0


@contextmanager
def running(home: Path, dags: Path, extra_variables: Mapping[str, str], dag_ids: Set[str]) -> Iterator[AirflowServer]:
    """Run an Airflow with workers that has loaded all DAGs of a directory; stop all of it on exit.

    Args:
        home: its directory, with a short path: a store's socket is in it.
        dags: directory of the DAG files, one DAG each.
        extra_variables: further environment variables, including its database.
        dag_ids: IDs of the DAGs.
    """
    with ExitStack() as stack:
        redis = stack.enter_context(directory_servers.running("redis"))
        settings = dict(extra_variables) | _celery_settings(f"redis://127.0.0.1:{redis.port}")
        server = stack.enter_context(services(home, dags, settings))

        def start(name: str, *command: str, host: str = "", **more_variables: str) -> Child:
            line = [*_on_host(host), sys.executable, "-m", *command]
            variables = server.variables | more_variables
            child = Child(name, line, log=home / f"{name}.log", environment=variables, folder=home)
            return stack.enter_context(child)

        workers = [start(name, *_worker(home, name, "default", CONCURRENCY)) for name in WORKERS]
        if can_name_hosts():
            address = f"unix://{home}/other.sock"
            store = ("entrepot.daemon_main", "--address", address, "--size", "64MiB", "--spill-path", "none")
            start("store", *store, host=OTHER_HOST)
            command = _worker(home, OTHER_HOST, OTHER_QUEUE, 1)
            workers.append(start(OTHER_HOST, *command, host=OTHER_HOST, AIRFLOW__ENTREPOT__ADDRESS=address))
        server.wait_until_ready(dag_ids)
        for worker in workers:
            worker.wait_for(partial(_is_ready, worker), "the worker", START_SECONDS)
        yield server


def _is_ready(worker: Child) -> bool:
    return " ready." in worker.log.read_text()


def _on_host(host: str) -> Sequence[str]:
    """The beginning of a command that runs on this host; empty: on this machine's own."""
    return ("unshare", "--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh") if host else ()


def _worker(home: Path, name: str, queue: str, concurrency: int) -> Sequence[str]:
    options = ("--celery-hostname", name, "--queues", queue, "--concurrency", str(concurrency))
    files = ("--pid", str(home / f"{name}.pid"), "--skip-serve-logs", "--without-mingle", "--without-gossip")
    return ("airflow", "celery", "worker", *options, *files)


def _celery_settings(redis: str) -> dict[str, str]:
    return {
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__CORE__PARALLELISM": str(CONCURRENCY * len(WORKERS) + 1),
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
        "AIRFLOW__CELERY__BROKER_URL": f"{redis}/0",
        "AIRFLOW__CELERY__RESULT_BACKEND": f"{redis}/1",
        "AIRFLOW__CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
        "AIRFLOW__OPERATORS__DEFAULT_QUEUE": "default",
    }
