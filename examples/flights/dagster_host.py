"""Dagster: the job in a process of its own, each step in another."""

from __future__ import annotations

import json
import sys
import time

from examples.flights.dagster_names import FILES_VARIABLE, TRANSPORT_VARIABLE
from examples.flights.measure.meter import Meter, Sums, read_calls
from examples.flights.processes import Child
from examples.flights.runs import ROOT, Asked, Outcome
from examples.flights.transports import Transport


def run(asked: Asked, transport: Transport) -> Outcome:
    """Run the job.

    Raises:
        DemoError: it failed, or took too long.
    """
    folder = asked.folder(transport)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    answer = folder / "answer.json"
    variables = asked.environment() | {
        "DAGSTER_HOME": str(home),
        TRANSPORT_VARIABLE: transport.name,
        FILES_VARIABLE: str(folder / "files"),
    }
    variables |= Meter.variables(folder / "meter", blobs=transport.is_entrepot)
    command = [sys.executable, "-m", "examples.flights.dagster_job", "--scale", str(asked.scale)]
    if asked.rows is not None:
        command += ["--rows", str(asked.rows)]
    begin, clock = time.time(), time.monotonic()
    with Child(
        "Dagster", [*command, "--answer", str(answer)], log=folder / "run.log", environment=variables, folder=ROOT
    ) as child:
        child.wait(asked.timeout)
    end, seconds = time.time(), time.monotonic() - clock
    found = json.loads(answer.read_text(encoding="utf-8"))
    travelled = {step: json.dumps(noted) for step, noted in found["outputs"].items() if step != "report"}
    return Outcome(transport, found["report"], seconds, begin, end, Sums.of(read_calls(folder / "meter")), travelled)
