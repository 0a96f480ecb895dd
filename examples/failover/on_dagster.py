"""Dagster: the job in a process of its own, each step in another."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from examples.failover.runs import Asked, Run
from examples.flights.processes import Child
from examples.flights.runs import ROOT


@contextmanager
def running(asked: Asked) -> Iterator[Run]:
    """Yields a function that runs the job."""
    home = asked.work / "dagster"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")

    def run(name: str) -> dict[str, Any]:
        answer = asked.work / f"{name}.json"
        command = [sys.executable, "-m", "examples.failover.dagster_run", "--scale", str(asked.scale)]
        if asked.rows is not None:
            command += ["--rows", str(asked.rows)]
        variables = asked.environment() | {"DAGSTER_HOME": str(home)}
        log = asked.work / f"{name}.log"
        with Child(
            "Dagster", [*command, "--answer", str(answer)], log=log, environment=variables, folder=ROOT
        ) as child:
            child.wait(asked.timeout)
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found

    yield run
