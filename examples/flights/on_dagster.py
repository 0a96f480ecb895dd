"""Dagster: the job in a process of its own, each step in another."""

from __future__ import annotations

import json
import sys
import time

from examples.flights.dagster_names import FILES_VARIABLE, TRANSPORT_VARIABLE
from examples.flights.measure.meter import CallTotals, Meter, read_calls
from examples.flights.processes import Child
from examples.flights.runs import ROOT, Outcome, RunConfig
from examples.flights.transports import Transport


def run(config: RunConfig, transport: Transport) -> Outcome:
    """Run the job.

    Raises:
        DemoError: it failed, or took too long.
    """
    folder = config.folder(transport)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    answer_file = folder / "answer.json"
    variables = config.environment() | {
        "DAGSTER_HOME": str(home),
        TRANSPORT_VARIABLE: transport.name,
        FILES_VARIABLE: str(folder / "files"),
    }
    variables |= Meter.variables(folder / "meter", blobs=transport.is_entrepot)
    command = [sys.executable, "-m", "examples.flights.dagster_job", "--scale", str(config.scale)]
    if config.rows is not None:
        command += ["--rows", str(config.rows)]
    begin, clock = time.time(), time.monotonic()
    with Child(
        "Dagster", [*command, "--answer", str(answer_file)], log=folder / "run.log", environment=variables, folder=ROOT
    ) as child:
        child.wait(config.timeout)
    end, seconds = time.time(), time.monotonic() - clock
    results = json.loads(answer_file.read_text(encoding="utf-8"))
    travelled = {step: json.dumps(metadata) for step, metadata in results["outputs"].items() if step != "report"}
    return Outcome(
        transport, results["report"], seconds, begin, end, CallTotals.of(read_calls(folder / "meter")), travelled
    )
