"""A DAG whose task reads the results of a mapped task, and counts the requests; run as a script, executes it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pendulum
from airflow.sdk import DAG, get_current_context, task
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.xcom import XCom
from recorded_steps import Recorder

INSTANCES = 6
READ: dict[str, Any] = {}


def count_requests(read: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Call a function; return its result, and the kinds of the requests that it caused."""
    requests: list[str] = []
    kind: Any = type(task_runner.SUPERVISOR_COMMS)
    send = kind.send

    def counting(comms: Any, msg: Any) -> Any:
        requests.append(type(msg).__name__)
        return send(comms, msg)

    kind.send = counting
    try:
        return read(), requests
    finally:
        kind.send = send


def pushed_again(ti: Any, index: int, value: Any) -> None:
    """What another attempt of an instance would do while its results are read."""
    arguments = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": "grow", "map_index": index}
    XCom.delete(key="return_value", **arguments)
    XCom.set(key="return_value", value=value, **arguments)


with DAG("sequences", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as sequences:

    @task
    def grow(size: int) -> Any:
        return np.full(5000, size)

    @task
    def gather(parts: Any, doubled: Any, pairs: Any) -> None:
        def firsts(values: Any) -> list[int]:
            return [int(value[0]) for value in values]

        READ["class"] = type(parts).__name__
        READ["iterated"] = count_requests(lambda: firsts(parts))
        READ["again"] = count_requests(lambda: firsts(parts))
        READ["reversed"] = firsts(reversed(parts))
        READ["mapped"] = count_requests(lambda: [int(value) for value in doubled])
        READ["zipped"] = [[int(left[0]), int(right[0])] for left, right in pairs]
        READ["single"] = [int(parts[3][0]), int(parts[-1][0]), firsts(parts[1:3]), len(parts)]

        context: Any = get_current_context()
        iterator = iter(parts)
        values: list[Any] = [int(next(iterator)[0]) for _ in range(2)]
        pushed_again(context["ti"], 3, np.full(5000, 33))
        pushed_again(context["ti"], 4, "plain")
        values += [value if isinstance(value, str) else int(value[0]) for value in iterator]
        READ["changed"] = values

    grown = grow.expand(size=list(range(INSTANCES)))
    gather(grown, grown.map(lambda value: value[0] * 2), grown.zip(grown))


def run() -> dict[str, Any]:
    state = str(sequences.test().state)
    return {"state": state, **READ}


if __name__ == "__main__":
    Recorder(Path(sys.argv[1])).run("sequences", partial(run))
