"""Runs the Dagster job as somebody without Dagster's daemon would, and has the policy re-execute what it lost.

    DAGSTER_HOME=... python -m examples.failover.dagster_run --answer FILE

With Dagster's daemon, ``policy_sensors()`` does the second half.
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
    parser.add_argument("--answer", type=Path, required=True, help="file for the report")
    asked = parser.parse_args()
    config = {
        "ops": {
            "load": {"config": {"scale": asked.scale, "rows": asked.rows}},
            "report": {"config": {"answer": str(asked.answer)}},
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
        first = execute_job(job, instance=instance, run_config=config)
        if not first.success:
            print(f"run {first.run_id} failed; what it misses is made again", flush=True)
            results = rerun_failed(instance, first.run_id, job)
            if not results or not results[-1].success:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
