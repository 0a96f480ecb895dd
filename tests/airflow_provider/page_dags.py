"""A DAG whose XComs the page shows; run as a script, executes it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pendulum
from airflow.sdk import DAG, task
from recorded_steps import Recorder


class Model:
    """A value that is pickled."""

    def __reduce__(self) -> Any:
        return (_unpickled, ())


def _unpickled() -> Model:
    Path("unpickled").touch()
    return Model()


with DAG("page", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as page:

    @task(multiple_outputs=True)
    def make() -> dict[str, Any]:
        frame = pd.DataFrame({"number": np.arange(50_000), "text": ["<script>alert(1)</script>", "b"] * 25_000})
        return {"frame": frame, "model": Model(), "small": 7}

    @task
    def use(frame: Any) -> int:
        return len(frame)

    @task
    def grow(size: int) -> Any:
        return np.full(5000, size)

    made: Any = make()
    use(made["frame"])
    grow.expand(size=[1, 2])


def run() -> dict[str, Any]:
    finished = page.test()
    return {"state": str(finished.state), "run_id": finished.run_id}


if __name__ == "__main__":
    Recorder(Path(sys.argv[1])).run("page", partial(run))
