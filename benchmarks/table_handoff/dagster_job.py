"""The hand-off as a Dagster job; each op runs in its own process."""

# No `from __future__ import annotations`: Dagster uses the annotations of ops as types.
import argparse
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from dagster import (
    Config,
    DagsterInstance,
    GraphDefinition,
    JobDefinition,
    execute_job,
    graph,
    op,
    reconstructable,
)

from benchmarks.table_handoff import tasks
from benchmarks.table_handoff.parquet_io_manager import PARQUET, parquet_io_manager
from examples.flights.dagster_job import measured_job, print_failed_steps
from examples.flights.dagster_names import TRANSPORT_VARIABLE

MODULE = "benchmarks.table_handoff.dagster_job"


class MakeConfig(Config):
    """Configuration of the first op."""

    mib: int = 1


@op
def make(config: MakeConfig) -> Any:
    return tasks.make(config.mib)


@op
def replace(frame: Any) -> Any:
    return tasks.replace(frame)


@op
def report(frame: Any) -> Any:
    return tasks.report(frame)


def _handoff() -> Any:
    return report(replace(make()))


handoff: GraphDefinition = graph(name="handoff")(_handoff)


def handoff_job() -> JobDefinition:
    """The job with the transport that the environment selects."""
    if os.environ.get(TRANSPORT_VARIABLE) != PARQUET.name:
        return measured_job(handoff)
    return measured_job(handoff, parquet_io_manager)


def main() -> int:
    """Run the job and write the number to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, required=True)
    parser.add_argument("--answer", type=Path, required=True)
    arguments = parser.parse_args()
    config = {
        "ops": {"make": {"config": {"mib": arguments.mib}}},
        "execution": {
            "config": {"max_concurrent": 2, "start_method": {"forkserver": {"preload_modules": [MODULE]}}},
        },
    }
    job = importlib.import_module(MODULE).handoff_job  # not of `__main__`, so that steps can import it
    with (
        DagsterInstance.get() as instance,
        execute_job(reconstructable(job), instance=instance, run_config=config) as result,
    ):
        if not result.success:
            print_failed_steps(result)
            return 1
        answer = result.output_for_node("report")
    arguments.answer.write_text(json.dumps(answer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
