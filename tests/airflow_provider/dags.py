"""DAGs that Airflow runs for the tests of the XCom backend; run as a script, executes them all and writes the results.

Each task records what it observed in a file in the directory that SEEN names.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import pendulum
from airflow.sdk import DAG, get_current_context, task
from recorded_steps import Recorder

START = pendulum.datetime(2026, 1, 1, tz="UTC")


class Model:
    """A fitted model: attributes and arrays."""

    def __init__(self, weights: Any) -> None:
        self.weights = weights


def task_instance() -> Any:
    context: Any = get_current_context()
    return context["ti"]


def record_observation(name: str, value: Any) -> None:
    with Path(os.environ["SEEN"], name).open("a") as file:
        file.write(json.dumps(value) + "\n")


def pull_result(task_id: str, **pull_arguments: Any) -> dict[str, Any]:
    """The result of a pull: a value, or the class and message of an error."""
    try:
        value = task_instance().xcom_pull(task_ids=task_id, **pull_arguments)
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error), "codes": [getattr(error, "code", None)]}
    return {"value": value.tolist() if isinstance(value, np.ndarray) else repr(value)}


with DAG("handoff", schedule=None, start_date=START) as handoff:

    @task
    def make() -> Any:
        return pd.DataFrame({"x": np.arange(100_000), "s": ["a", "b"] * 50_000})

    @task
    def features(frame: Any) -> Any:
        return frame["x"].to_numpy()

    @task
    def fit(values: Any) -> Any:
        return Model(values[:1000])

    @task(multiple_outputs=True)
    def several() -> dict[str, Any]:
        return {"array": np.arange(5000), "number": 7}

    @task
    def plain() -> dict[str, Any]:
        return {"rows": 3, "names": ["a", "b"], "nothing": None}

    @task
    def report(frame: Any, values: Any, model: Any, array: Any, number: int, small: dict[str, Any]) -> dict[str, Any]:
        record_observation(
            "handoff",
            {
                "frame": [type(frame).__module__.split(".")[0], len(frame), int(frame["x"].sum())],
                "dtypes": [str(dtype) for dtype in frame.dtypes],
                "values": [str(values.dtype), bool(values.flags.writeable)],
                "model": [type(model).__name__, int(model.weights.sum())],
                "several": [int(array.sum()), number],
                "small": small,
            },
        )
        return {"done": True}

    frame = make()
    values = features(frame)
    several_values: Any = several()
    small: Any = plain()
    report(frame, values, fit(values), several_values["array"], several_values["number"], small)


with DAG("mapped", schedule=None, start_date=START) as mapped:

    @task
    def sizes() -> list[int]:
        return [1000, 2000, 3000]

    @task
    def grow(size: int) -> Any:
        return np.full(size, size)

    @task
    def gather(parts: Any) -> None:
        record_observation("mapped", [int(part[0]) for part in parts])

    gather(grow.expand(size=sizes()))


with DAG("retried", schedule=None, start_date=START) as retried:

    @task(retries=1, retry_delay=0)
    def flaky() -> Any:
        ti = task_instance()
        if ti.try_number == 2:
            with entrepot.connect(scope="tests") as store:
                early = store.session(f"airflow/retried/{ti.run_id}").derive("retried/flaky/early")
                record_observation("purged", not store.exists(early))
        ti.xcom_push("early", np.full(1000, ti.try_number))
        if ti.try_number == 1:
            raise RuntimeError("fails once")
        return np.full(1000, ti.try_number)

    @task
    def after(value: Any) -> None:
        early = task_instance().xcom_pull(task_ids="flaky", key="early")
        record_observation("retried", [int(value[0]), int(early[0])])

    after(flaky())


with DAG("lost", schedule=None, start_date=START) as lost:

    @task
    def produce() -> Any:
        return np.arange(1000)

    @task
    def lose(value: Any) -> int:
        """Delete the object behind Airflow's back."""
        ti = task_instance()
        with entrepot.connect(scope="tests") as store:
            oid = store.session(f"airflow/lost/{ti.run_id}").derive("lost/produce/return_value")
            assert store.delete(oid)
        return len(value)

    @task
    def look() -> None:
        record_observation("lost", pull_result("produce"))

    @task
    def use(value: Any) -> None:
        record_observation("lost_used", "a value came through")

    value = produce()
    lose_result = lose(value)
    lose_result.set_downstream([look(), use(value)])


with DAG("replaced", schedule=None, start_date=START) as replaced:

    @task
    def original() -> Any:
        return np.arange(1000)

    @task
    def write_again(value: Any) -> int:
        """Simulate a later attempt of `original` that has written its value but not yet pushed its reference."""
        from entrepot_airflow import EntrepotXComBackend

        ti = task_instance()
        EntrepotXComBackend.serialize_value(
            np.zeros(1000), key="return_value", task_id="original", dag_id="replaced", run_id=ti.run_id, map_index=-1
        )
        return len(value)

    @task
    def look_again() -> None:
        record_observation("replaced", pull_result("original"))

    write_again(original()).set_downstream(look_again())


ROWS = 1000
# Values to write into the first row of a frame's columns.
WRITTEN: dict[str, Any] = {"number": 7, "share": 0.5, "day": pd.Timestamp("2030-01-01"), "text": "z"}


def first_row(frame: Any) -> list[str]:
    return [str(frame[column].iloc[0]) for column in WRITTEN]


def build_writing(dag_id: str) -> DAG:
    """Tasks that write into a frame they were given, each into another column, and a task that reads it after them."""
    with DAG(dag_id, schedule=None, start_date=START) as dag:

        @task
        def table() -> Any:
            return pd.DataFrame(
                {
                    "number": np.arange(ROWS),
                    "share": np.linspace(0, 1, ROWS),
                    "day": pd.date_range("2026-01-01", periods=ROWS),
                    "text": ["a", "b"] * (ROWS // 2),
                }
            )

        @task
        def write_into(frame: Any, column: str) -> None:
            frame.loc[0, column] = WRITTEN[column]
            record_observation(f"{dag_id}_{column}", first_row(frame))

        @task(trigger_rule="all_done")
        def read_after(frame: Any) -> None:
            record_observation(f"{dag_id}_after", first_row(frame))

        frame = table()
        after: Any = read_after(frame)
        for column in WRITTEN:
            written: Any = write_into.override(task_id=f"write_{column}")(frame, column)
            written.set_downstream(after)
    return dag


writing, writing_on_write = build_writing("writing"), build_writing("writing_on_write")


def entries(dag_id: str) -> dict[str, Any]:
    """Content of Airflow's database, by task, map index and key."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.scalars(select(XComModel).where(XComModel.dag_id == dag_id)).all()
        return {f"{row.task_id}[{row.map_index}].{row.key}": row.value for row in rows}


def run_dag(dag: DAG, **variables: str) -> dict[str, Any]:
    os.environ.update(variables)
    try:
        run = dag.test()
    finally:
        for name in variables:
            del os.environ[name]
    states = {f"{ti.task_id}[{ti.map_index}]": str(ti.state) for ti in run.get_task_instances()}
    return {"states": states, "entries": entries(dag.dag_id)}


def main() -> None:
    recorder = Recorder(Path(sys.argv[1]))
    for dag in (handoff, mapped, retried, lost, replaced, writing):
        recorder.run(dag.dag_id, partial(run_dag, dag))
    recorder.run("writing_on_write", partial(run_dag, writing_on_write, AIRFLOW__ENTREPOT__COPY="on_write"))


if __name__ == "__main__":
    main()
