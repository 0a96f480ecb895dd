"""A DAG whose task reads the results of a mapped task, and counts the requests; run as a script, executes it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pendulum
from airflow.sdk import DAG, get_current_context, task
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.lazy_sequence import LazyXComSequence
from airflow.sdk.execution_time.xcom import XCom
from entrepot_airflow.values import read_ahead
from recorded_steps import Recorder

INSTANCES = 6
WITHOUT_RESULT = 2  # the instance of `sparse` that returns None, which Airflow does not store
READ: dict[str, Any] = {}


def count_requests(read: Callable[[], Any]) -> tuple[Any, list[Any]]:
    """Call a function; return its result, and the requests that it caused: their kinds, and of parts the bounds."""
    requests: list[Any] = []
    kind: Any = type(task_runner.SUPERVISOR_COMMS)
    send = kind.send

    def counting(comms: Any, msg: Any) -> Any:
        name = type(msg).__name__
        requests.append([name, msg.start, msg.stop] if name == "GetXComSequenceSlice" else name)
        return send(comms, msg)

    kind.send = counting
    try:
        return read(), requests
    finally:
        kind.send = send


def firsts(values: Any) -> list[int]:
    """The first number of each array."""
    return [int(value[0]) for value in values]


@contextmanager
def small_batches(first: int, most: int) -> Iterator[None]:
    """Request at most so many entries at once."""
    former = read_ahead.REFERENCES, read_ahead.MORE_REFERENCES
    read_ahead.REFERENCES, read_ahead.MORE_REFERENCES = first, most
    try:
        yield
    finally:
        read_ahead.REFERENCES, read_ahead.MORE_REFERENCES = former


def new_sequence(values: Any, kind: Any = None) -> Any:
    """The same results as a sequence that has requested nothing yet; of another class, such as Airflow's own."""
    return (kind or type(values))(xcom_arg=values._xcom_arg, ti=values._ti)


def ways_to_read(values: Any) -> dict[str, Any]:
    """Everything that a sequence offers, each from a sequence that has requested nothing yet."""

    def out_of_range(index: int) -> str:
        try:
            return str(new_sequence(values, type(values))[index])
        except IndexError as error:
            return f"IndexError: {error}"

    def again() -> Any:
        return new_sequence(values, type(values))

    return {
        "iterated": firsts(again()),
        "reversed": firsts(reversed(again())),
        "length": len(again()),
        "indexes": [int(again()[index][0]) for index in (0, 3, -1, -2)],
        "slices": [firsts(again()[part]) for part in (slice(1, 3), slice(None), slice(4, None), slice(-2, None))],
        "steps": [firsts(again()[part]) for part in (slice(None, None, 2), slice(0, 0))],
        "out of range": [out_of_range(index) for index in (INSTANCES + 1, -INSTANCES - 1)],
        "pairs": [[int(left[0]), int(right[0])] for left, right in zip(again(), again(), strict=True)],
    }


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
    def sparse(size: int) -> Any:
        return None if size == WITHOUT_RESULT else np.full(5000, size)

    @task
    def gather(parts: Any, doubled: Any, pairs: Any, joined: Any, gaps: Any) -> None:
        READ["class"] = type(parts).__name__
        READ["iterated"] = count_requests(lambda: firsts(parts))
        READ["again"] = count_requests(lambda: firsts(parts))
        READ["reversed"] = count_requests(lambda: firsts(reversed(new_sequence(parts))))
        READ["first"] = count_requests(lambda: int(new_sequence(parts)[0][0]))
        with small_batches(first=1, most=2):
            READ["growing"] = count_requests(lambda: firsts(new_sequence(parts)))
            READ["growing back"] = count_requests(lambda: firsts(reversed(new_sequence(parts))))
        READ["here"], READ["in Airflow"] = ways_to_read(parts), ways_to_read(new_sequence(parts, LazyXComSequence))
        READ["gaps here"] = ways_to_read(gaps)
        READ["gaps in Airflow"] = ways_to_read(new_sequence(gaps, LazyXComSequence))
        READ["mapped"] = count_requests(lambda: [int(value) for value in doubled])
        READ["zipped"] = [[int(left[0]), int(right[0])] for left, right in pairs]
        READ["joined"] = count_requests(lambda: firsts(joined))

        context: Any = get_current_context()
        iterator = iter(parts)
        values: list[Any] = [int(next(iterator)[0]) for _ in range(2)]
        pushed_again(context["ti"], 3, np.full(5000, 33))
        pushed_again(context["ti"], 4, "plain")
        values += [value if isinstance(value, str) else int(value[0]) for value in iterator]
        READ["changed"] = values

    grown = grow.expand(size=list(range(INSTANCES)))
    gaps = sparse.expand(size=list(range(INSTANCES)))
    gather(grown, grown.map(lambda value: value[0] * 2), grown.zip(grown), grown.concat(gaps), gaps)


def run() -> dict[str, Any]:
    state = str(sequences.test().state)
    return {"state": state, **READ}


if __name__ == "__main__":
    Recorder(Path(sys.argv[1])).run("sequences", partial(run))
