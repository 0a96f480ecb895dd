"""Runs the environments of the matrix beside each other, one process each, on one store."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
# By name: the folder of the virtual environment. `make environments` creates those of the matrix from the lock files
# beside this file; the first two are those of all tests.
ENVIRONMENTS = {
    "newest": ".venv",
    "pandas2": ".venv-pandas2",
    "middle": ".venv-middle",
    "oldest": ".venv-oldest",
    "polars": ".venv-polars",
    "no-arrow": ".venv-no-arrow",
    "numpy-only": ".venv-numpy-only",
}
MATRIX = [environment for environment in ENVIRONMENTS if environment != "pandas2"]
PAIR = ["newest", "pandas2"]
# The one that has the modules in the folder "own".
WITH_OWN_MODULES = "newest"
# No process takes a tenth of this to end once its input has ended.
END_SECONDS = 60.0


def python_of(environment: str) -> Path:
    """The interpreter of an environment."""
    return ROOT / ENVIRONMENTS[environment] / "bin/python"


@dataclass(frozen=True)
class Reading:
    """What one environment got for what another one had put.

    Attributes:
        writer, reader: environments.
        name: of the value.
        versions: of the packages that the reader has.
        writer_versions: of those that the writer has.
        written: the writer's description of it.
        read: the reader's description of what it got; None: an error.
        error: type of the error, whether it derives from ``EntrepotError``, message, and trace; None: a value.
    """

    writer: str
    reader: str
    name: str
    versions: dict[str, str | None]
    writer_versions: dict[str, str | None]
    written: Any
    read: Any
    error: dict[str, Any] | None


class Worker:
    """The process of one environment; see ``matrix_worker.py``."""

    def __init__(self, environment: str, address: str, log: Any) -> None:
        self.environment = environment
        variables = dict(os.environ)
        if environment == WITH_OWN_MODULES:
            variables["PYTHONPATH"] = str(FOLDER / "own")
        self._process = subprocess.Popen(
            [str(python_of(environment)), str(FOLDER / "matrix_worker.py"), address, environment],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=variables,
        )
        self._log = log

    def send(self, command: Any) -> None:
        """Send a command, without waiting for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest command without one."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._log.seek(0)
            raise AssertionError(f"{self.environment} ended ({self._process.returncode}): {self._log.read()}")
        return json.loads(line)

    def end(self) -> None:
        """End the process; answers that nobody read are dropped."""
        try:
            self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise


@contextmanager
def running(environments: list[str], address: str) -> Iterator[dict[str, Worker]]:
    """Context in which a process of each environment runs."""
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for environment in environments:
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            workers[environment] = Worker(environment, address, log)
            stack.callback(workers[environment].end)
        yield workers


def read_everywhere(environments: list[str], address: str) -> list[Reading]:
    """Put every value in every environment that can make it; read each of them in every other environment."""
    with running(environments, address) as workers:
        for worker in workers.values():
            worker.send("versions")
        versions: dict[str, Any] = {name: worker.answer() for name, worker in workers.items()}
        for worker in workers.values():
            worker.send("put")
        written: dict[str, dict[str, Any]] = {name: worker.answer() for name, worker in workers.items()}
        for worker in workers.values():
            worker.send({"get": _others(written, worker.environment)})
        return [
            Reading(
                writer=writer,
                reader=reader,
                name=name,
                versions=versions[reader],
                writer_versions=versions[writer],
                written=written[writer][name],
                read=answer.get("value"),
                error=answer.get("error"),
            )
            for reader, worker in workers.items()
            for (writer, name), answer in zip(_others(written, reader), worker.answer(), strict=True)
        ]


def _others(written: dict[str, dict[str, Any]], reader: str) -> list[list[str]]:
    return [[writer, name] for writer, values in written.items() if writer != reader for name in values]
