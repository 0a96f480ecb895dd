"""Dagster: the job in a process of its own, each step in another."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from examples.failover.runs import RunConfig, RunJob
from examples.flights.processes import Child
from examples.flights.runs import ROOT


@contextmanager
def running(config: RunConfig) -> Iterator[RunJob]:
    """Yields a function that runs the job."""
    home = config.work / "dagster"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")

    def run(name: str) -> dict[str, Any]:
        answer_file = config.work / f"{name}.json"
        command = [sys.executable, "-m", "examples.failover.dagster_run", "--scale", str(config.scale)]
        if config.rows is not None:
            command += ["--rows", str(config.rows)]
        variables = config.environment() | {"DAGSTER_HOME": str(home)}
        log = config.work / f"{name}.log"
        with Child(
            "Dagster", [*command, "--answer", str(answer_file)], log=log, environment=variables, folder=ROOT
        ) as child:
            child.wait(config.timeout)
        report: dict[str, Any] = json.loads(answer_file.read_text(encoding="utf-8"))
        return report

    yield run
