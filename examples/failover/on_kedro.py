"""Kedro: one ``kedro run`` with a runner that survives the death of a node's process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from examples.failover.runs import RunConfig, RunJob
from examples.flights.processes import Child
from examples.flights.runs import ROOT

PROJECT = ROOT / "examples/failover/kedro_project"


@contextmanager
def running(config: RunConfig) -> Iterator[RunJob]:
    """Yields a function that runs the pipeline."""

    def run(name: str) -> dict[str, Any]:
        answer_file = config.work / f"{name}.json"
        variables = config.environment() | {
            "KEDRO_DISABLE_TELEMETRY": "1",
            "KEDRO_LOGGING_CONFIG": str(PROJECT / "conf/logging.yml"),
        }
        parameters = [f"scale={config.scale}", f"answer={answer_file}"]
        if config.rows is not None:
            parameters.append(f"rows={config.rows}")
        command = [sys.executable, "-m", "kedro", "run", "--runner", "entrepot_kedro.EntrepotParallelRunner"]
        command += ["--params", ",".join(parameters)]
        log = config.work / f"{name}.log"
        with Child("Kedro", command, log=log, environment=variables, folder=PROJECT) as child:
            child.wait(config.timeout)
        report: dict[str, Any] = json.loads(answer_file.read_text(encoding="utf-8"))
        return report

    yield run
