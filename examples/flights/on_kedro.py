"""Kedro: ``kedro run`` of the project with ParallelRunner; the configuration environment selects the transport."""

from __future__ import annotations

import json
import re
import sys
import time

from examples.flights.measure.meter import CallTotals, Meter, read_calls
from examples.flights.processes import Child
from examples.flights.runs import ROOT, Outcome, RunConfig
from examples.flights.transports import Transport

PROJECT = ROOT / "examples/flights/kedro_project"
# Kedro logs for each saved value which dataset saved it.
_SAVED_DATASET = re.compile(r"Saving data to (\w+) \((\w+)\)")


def run(config: RunConfig, transport: Transport) -> Outcome:
    """Run the pipeline.

    Raises:
        DemoError: it failed, or took too long.
    """
    folder = config.folder(transport)
    files = folder / "files"
    files.mkdir(exist_ok=True)
    answer_file = folder / "answer.json"
    variables = config.environment() | {
        "KEDRO_DISABLE_TELEMETRY": "1",
        "KEDRO_LOGGING_CONFIG": str(PROJECT / "conf/logging.yml"),
    }
    variables |= Meter.variables(folder / "meter", blobs=transport.is_entrepot)
    parameters = [f"scale={config.scale}", f"answer={answer_file}", f"files={files}"]
    if config.rows is not None:
        parameters.append(f"rows={config.rows}")
    command = [sys.executable, "-m", "kedro", "run", "--env", transport.name, "--runner", "ParallelRunner"]
    begin, clock = time.time(), time.monotonic()
    with Child(
        "Kedro",
        [*command, "--params", ",".join(parameters)],
        log=folder / "run.log",
        environment=variables,
        folder=PROJECT,
    ) as child:
        child.wait(config.timeout)
    end, seconds = time.time(), time.monotonic() - clock
    log = (folder / "run.log").read_text(encoding="utf-8", errors="replace")
    travelled = {name: dataset for name, dataset in _SAVED_DATASET.findall(log) if name != "report"}
    report = json.loads(answer_file.read_text(encoding="utf-8"))
    return Outcome(transport, report, seconds, begin, end, CallTotals.of(read_calls(folder / "meter")), travelled)
