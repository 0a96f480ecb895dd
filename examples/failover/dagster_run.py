"""Runs the Dagster job without Dagster's daemon; if it fails, re-executes the steps that the policy selects.

    DAGSTER_HOME=... python -m examples.failover.dagster_run --answer FILE

With Dagster's daemon, ``policy_sensors()`` does the re-execution.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dagster import DagsterInstance, execute_job, reconstructable
from entrepot_dagster import rerun_failed

from examples.failover import dagster_job


def main() -> int:
    """Run the job, which writes its report as JSON; exit code 1 if it did not complete despite the policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--answer", type=Path, required=True, help="output file for the report")
    arguments = parser.parse_args()
    config = {
        "ops": {
            "load": {"config": {"scale": arguments.scale, "rows": arguments.rows}},
            "report": {"config": {"answer": str(arguments.answer)}},
        },
        "execution": {
            "config": {
                "max_concurrent": 2,
                "start_method": {"forkserver": {"preload_modules": [dagster_job.__name__]}},
            }
        },
    }
    job = reconstructable(dagster_job.failover_job)
    with DagsterInstance.get() as instance:
        result = execute_job(job, instance=instance, run_config=config)
        if not result.success:
            print(f"run {result.run_id} failed; recomputing its lost values", flush=True)
            results = rerun_failed(instance, result.run_id, job)
            if not results or not results[-1].success:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
