"""A DAG whose values appear in metrics and lineage, and which keeps a large state; run as a script, executes it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pendulum
from airflow.sdk import DAG, get_current_context, task
from airflow.sdk.lineage import get_hook_lineage_collector
from recorded_steps import Recorder

SEEN: dict[str, Any] = {}


def collected() -> dict[str, Any]:
    lineage: Any = get_hook_lineage_collector().collected_assets
    return {
        kind: {each.asset.uri: each.asset.extra for each in getattr(lineage, kind)} for kind in ("inputs", "outputs")
    }


with DAG("observed", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as observed:

    @task
    def make() -> Any:
        context: Any = get_current_context()
        frame = pd.DataFrame({"number": range(1000), "text": ["a"] * 1000})
        context["ti"].xcom_push("frame", frame)
        context["ti"].xcom_push("small", 7)
        SEEN["make"] = collected()
        states = context["task_state_store"]
        states.set("cursor", "x" * 100_000)
        SEEN["state"] = len(states.get("cursor"))
        return frame

    @task
    def use(frame: Any) -> int:
        SEEN["use"] = collected()
        return len(frame)

    use(make())


def run() -> dict[str, Any]:
    return {"state": str(observed.test().state), **SEEN}


if __name__ == "__main__":
    Recorder(Path(sys.argv[1])).run("observed", partial(run))
