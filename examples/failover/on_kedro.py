"""Kedro: one ``kedro run`` with a runner that survives the death of a node's process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from examples.failover.runs import Asked, Run
from examples.flights.processes import Child
from examples.flights.runs import ROOT

PROJECT = ROOT / "examples/failover/kedro_project"


@contextmanager
def running(asked: Asked) -> Iterator[Run]:
    """Yields a function that runs the pipeline."""

    def run(name: str) -> dict[str, Any]:
        answer = asked.work / f"{name}.json"
        variables = asked.environment() | {
            "KEDRO_DISABLE_TELEMETRY": "1",
            "KEDRO_LOGGING_CONFIG": str(PROJECT / "conf/logging.yml"),
        }
        parameters = [f"scale={asked.scale}", f"answer={answer}"]
        if asked.rows is not None:
            parameters.append(f"rows={asked.rows}")
        command = [sys.executable, "-m", "kedro", "run", "--runner", "entrepot_kedro.EntrepotParallelRunner"]
        command += ["--params", ",".join(parameters)]
        log = asked.work / f"{name}.log"
        with Child("Kedro", command, log=log, environment=variables, folder=PROJECT) as child:
            child.wait(asked.timeout)
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found

    yield run
