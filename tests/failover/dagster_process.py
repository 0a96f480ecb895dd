"""Process that runs the job in one instance, case after case, and re-executes runs that fail because of lost values.

It reads one JSON object per line: ``jobs``, the file of the job (a different name for each case, because Dagster caches
what it loaded); ``settings``, environment variables; optionally ``failed``, a run that a user re-executes. It answers
each with a line: the IDs of the runs, in order, or the error.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, execute_job
from dagster._core.definitions.reconstruct import ReconstructableJob
from entrepot_dagster import rerun_failed
from entrepot_io.connections import close_all

# Step processes are forked from a server that keeps the environment of its start, so they read this file.
SETTINGS_VARIABLE = "FAILOVER_SETTINGS"


def run_case(instance: DagsterInstance, request: dict[str, Any]) -> list[str]:
    """Run one case."""
    job = ReconstructableJob.for_file(request["jobs"], "flow")
    if request.get("failed"):
        return [result.run_id for result in rerun_failed(instance, request["failed"], job)]
    first = execute_job(job, instance=instance)
    reruns = [] if first.success else rerun_failed(instance, first.run_id, job, asked=False)
    return [first.run_id, *(result.run_id for result in reruns)]


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # any other output goes to the log
    with DagsterInstance.get() as instance:
        for line in sys.stdin:
            request = json.loads(line)
            Path(os.environ[SETTINGS_VARIABLE]).write_text(json.dumps(request["settings"]))
            os.environ.update(request["settings"])
            try:
                answer: dict[str, Any] = {"runs": run_case(instance, request)}
            except Exception:  # only this case fails
                answer = {"error": traceback.format_exc()}
            close_all()
            answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
