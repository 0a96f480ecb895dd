"""Process that runs the job in one instance, case after case, and re-executes runs that fail because of lost values.

It reads one JSON object per line: ``jobs``, the file of the job (a different name for each case, because Dagster caches
what it loaded); ``settings``, environment variables; optionally ``failed``, a run that a user re-executes. It answers
each with a line: the IDs of the runs, in order, or the error.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, execute_job
from dagster._core.definitions.reconstruct import ReconstructableJob
from entrepot.errors import EntrepotError
from entrepot_dagster import rerun_failed
from entrepot_io.connections import close_all

# Step processes are forked from a server that keeps the environment of its start, so they read this file.
SETTINGS = "FAILOVER_SETTINGS"


def run(instance: DagsterInstance, asked: dict[str, Any]) -> list[str]:
    """Run one case."""
    job = ReconstructableJob.for_file(asked["jobs"], "flow")
    if asked.get("failed"):
        return [one.run_id for one in rerun_failed(instance, asked["failed"], job)]
    first = execute_job(job, instance=instance)
    more = [] if first.success else rerun_failed(instance, first.run_id, job, asked=False)
    return [first.run_id, *(one.run_id for one in more)]


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # any other output goes to the log
    with DagsterInstance.get() as instance:
        for line in sys.stdin:
            asked = json.loads(line)
            Path(os.environ[SETTINGS]).write_text(json.dumps(asked["settings"]))
            os.environ.update(asked["settings"])
            try:
                answer: dict[str, Any] = {"runs": run(instance, asked)}
            except EntrepotError as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            close_all()
            answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
