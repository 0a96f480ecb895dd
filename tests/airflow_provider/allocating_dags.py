"""A DAG whose tasks make large values; run as a script, executes it. The last task records what was sealed in place."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pendulum
from airflow.sdk import DAG, task
from entrepot import _core
from recorded_steps import Recorder
from value_memory_tries import until_nothing_is_refused

with DAG("allocating", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as allocating:

    @task
    def make() -> Any:
        return until_nothing_is_refused(lambda: np.arange(500_000))[0]

    @task
    def double(values: Any) -> Any:
        return until_nothing_is_refused(lambda: np.concatenate([values, values]))[0]

    @task
    def report(values: Any) -> None:
        seen = {"sum": int(values.sum()), **_core.value_memory()}
        Path(os.environ["SEEN"], "allocating").write_text(json.dumps(seen))

    report(double(make()))


if __name__ == "__main__":
    Recorder(Path(sys.argv[1])).run("allocating", lambda: {"state": str(allocating.test().state)})
