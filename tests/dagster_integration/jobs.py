"""Jobs for the multiprocess executor; each step is a new interpreter that loads this file."""

import os
from typing import Any

import numpy as np
import pandas as pd
from dagster import DynamicOut, DynamicOutput, In, Nothing, OpExecutionContext, Out, RetryPolicy, graph, job, op
from entrepot_dagster import EntrepotIOManager

IO = {"io_manager": EntrepotIOManager()}


class Model:
    """A fitted model: attributes and arrays."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights


@op(out={"frame": Out(), "pid": Out()})
def make() -> tuple[pd.DataFrame, int]:
    return pd.DataFrame({"x": np.arange(100_000), "s": ["a", "b"] * 50_000}), os.getpid()


@op
def fit(frame: pd.DataFrame) -> Any:
    return Model(frame["x"].to_numpy()[:1000])


@op
def report(frame: pd.DataFrame, model: Any, pid: int) -> dict[str, Any]:
    assert len(frame) == 100_000
    assert int(frame["x"].sum()) == 100_000 * 99_999 // 2
    assert int(model.weights.sum()) == 1000 * 999 // 2
    assert not frame["x"].to_numpy().flags.writeable
    return {"processes": [pid, os.getpid()], "model": type(model).__name__}


@job(resource_defs=IO)
def handoff() -> None:
    frame, pid = make()
    report(frame, fit(frame), pid)


@op(out=DynamicOut())
def split() -> Any:
    for number in range(3):
        yield DynamicOutput(np.full(10_000, number), mapping_key=f"part_{number}")


@op
def double(part: np.ndarray) -> np.ndarray:
    return part * 2


@op
def total(parts: list[np.ndarray]) -> int:
    return int(sum(int(part.sum()) for part in parts))


@job(resource_defs=IO)
def dynamic() -> None:
    total(split().map(double).collect())


@op(retry_policy=RetryPolicy(max_retries=1), out={"first": Out(), "second": Out()})
def flaky(context: OpExecutionContext) -> Any:
    """Yield the first output, then fail on the first attempt."""
    from dagster import Output

    yield Output(np.full(10_000, context.retry_number), "first")
    if context.retry_number == 0:
        raise RuntimeError("fails once")
    yield Output(context.retry_number, "second")


@op
def check_attempt(first: np.ndarray, second: int) -> int:
    assert first.tolist() == [second] * 10_000
    return second


@job(resource_defs=IO)
def retried() -> None:
    first, second = flaky()
    check_attempt(first, second)


@op
def lose(context: OpExecutionContext, frame: pd.DataFrame) -> None:
    """Delete its own input behind Dagster's back."""
    from entrepot_dagster.values.keys import default_scope, key_of_output
    from entrepot_io.connections import session_store

    output_key = key_of_output([context.run_id, "make", "frame"])
    store = session_store(None, default_scope(context.instance), output_key.session, None)
    assert len(frame) == 100_000
    assert store.delete(store.derive(output_key.key))


@op(ins={"after": In(Nothing)}, retry_policy=RetryPolicy(max_retries=3))
def consume(frame: pd.DataFrame) -> int:
    return len(frame)


@graph
def losing() -> None:
    frame, _ = make()
    consume(frame, after=lose(frame))


lost = losing.to_job(resource_defs=IO)


ROWS = 1000
# Values to write into the first row of a frame's columns.
WRITTEN: dict[str, Any] = {"number": 7, "share": 0.5, "day": pd.Timestamp("2030-01-01"), "text": "z"}


def first_row(frame: pd.DataFrame) -> list[str]:
    return [str(frame[column].iloc[0]) for column in WRITTEN]


@op
def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "number": np.arange(ROWS),
            "share": np.linspace(0, 1, ROWS),
            "day": pd.date_range("2026-01-01", periods=ROWS),
            "text": ["a", "b"] * (ROWS // 2),
        }
    )


def writer(column: str) -> Any:
    @op(name=f"write_{column}")
    def write_into(frame: pd.DataFrame) -> list[str]:
        frame.loc[0, column] = WRITTEN[column]
        return first_row(frame)

    return write_into


WRITERS = [writer(column) for column in WRITTEN]
ON_WRITE = {"io_manager": EntrepotIOManager(copy="on_write")}


@graph
def writing_to_a_column() -> None:
    WRITERS[0](table())


@graph
def writing_to_each_column() -> None:
    frame = table()
    for write_into in WRITERS:
        write_into(frame)


writing = writing_to_a_column.to_job(name="writing", resource_defs=IO)
writing_on_write = writing_to_a_column.to_job(name="writing_on_write", resource_defs=ON_WRITE)
writing_each = writing_to_each_column.to_job(name="writing_each", resource_defs=IO)
writing_each_on_write = writing_to_each_column.to_job(name="writing_each_on_write", resource_defs=ON_WRITE)
