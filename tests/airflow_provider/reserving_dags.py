"""A DAG whose tasks record what they have reserved; run as a script, executes it twice."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pendulum
from airflow.sdk import DAG, task
from entrepot_io.connections import scope_store
from recorded_steps import Recorder

SEEN = Path(os.environ["SEEN"])


def record(name: str) -> None:
    """Append how many bytes are reserved in the store."""
    seen = json.loads(SEEN.read_text()) if SEEN.exists() else []
    SEEN.write_text(json.dumps([*seen, [name, scope_store(None, "tests").status()["reservations"]["bytes"]]]))


with DAG("reserving", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as reserving:

    @task
    def make() -> Any:
        record("make")
        return np.ones(1 << 20)

    @task
    def double(values: Any) -> Any:
        record("double")
        return np.tile(values, 2)

    @task
    def last(values: Any) -> None:
        record("last")

    last(double(make()))


def run() -> Any:
    """Run it, and record what is still reserved afterwards."""
    state = str(reserving.test().state)
    record("end")
    return {"state": state}


if __name__ == "__main__":
    recorder = Recorder(Path(sys.argv[1]))
    recorder.run("first", run)
    recorder.run("second", run)
