"""A DAG whose tasks make large values; run as a script, executes it. The last task records what was sealed in place."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pendulum
from airflow.sdk import DAG, task
from entrepot import _core
from recorded_steps import Recorder


def made(make: Callable[[], Any]) -> Any:
    """Make a value again if the store refused memory, which it may on a busy machine."""
    end = time.monotonic() + 60
    while True:
        refused = _core.value_memory()["refused"]
        value = make()
        if _core.value_memory()["refused"] == refused or time.monotonic() > end:
            return value
        del value
        time.sleep(0.3)


with DAG("allocating", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as allocating:

    @task
    def make() -> Any:
        return made(lambda: np.arange(500_000))

    @task
    def double(values: Any) -> Any:
        return made(lambda: np.concatenate([values, values]))

    @task
    def report(values: Any) -> None:
        seen = {"sum": int(values.sum()), **_core.value_memory()}
        Path(os.environ["SEEN"], "allocating").write_text(json.dumps(seen))

    report(double(make()))


if __name__ == "__main__":
    Recorder(Path(sys.argv[1])).run("allocating", lambda: {"state": str(allocating.test().state)})
