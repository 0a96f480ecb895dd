"""The process of a run of ``faulty_jobs.struck``: ``python faulty_run.py FOLDER``, with DAGSTER_HOME set."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dagster import DagsterInstance, execute_job
from dagster._core.definitions.reconstruct import ReconstructableJob

JOB = ReconstructableJob.for_file(str(Path(__file__).with_name("faulty_jobs.py")), "struck")


def main(folder: Path) -> int:
    """Run the job with the folder's configuration, and leave the process ID and the job's answer there."""
    (folder / "run-pid").write_text(str(os.getpid()))
    run_config = json.loads((folder / "run-config.json").read_text())
    with (
        DagsterInstance.get() as instance,
        execute_job(JOB, instance=instance, run_config=run_config) as result,
    ):
        if not result.success:
            return 1
        (folder / "answer.json").write_text(json.dumps(result.output_for_node("total")))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
