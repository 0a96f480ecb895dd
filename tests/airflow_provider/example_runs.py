"""Runs the DAGs of examples/airflow; as a script, writes their tasks' states and what Airflow has of their values."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from recorded_steps import Recorder

EXAMPLES = Path(__file__).parents[2] / "examples" / "airflow"


def dags_of(file: Path) -> list[Any]:
    """DAGs that a file defines, in its order, as Airflow finds them."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(file))
    assert not bag.import_errors, bag.import_errors
    return list(bag.dags.values())


def run(file: Path) -> dict[str, Any]:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    outcome: dict[str, Any] = {"states": {}, "values": {}}
    for dag in dags_of(file):
        finished = dag.test()
        for ti in finished.get_task_instances():
            outcome["states"][f"{dag.dag_id}.{ti.task_id}[{ti.map_index}]"] = str(ti.state)
        with create_session() as session:
            rows = session.scalars(select(XComModel).where(XComModel.dag_id == dag.dag_id)).all()
            outcome["values"] |= {f"{row.task_id}.{row.key}": row.value for row in rows}
    return outcome


if __name__ == "__main__":
    recorder = Recorder(Path(sys.argv[1]))
    for example in sorted(EXAMPLES.glob("*.py")):
        recorder.run(example.stem, partial(run, example))
