"""A DAG that calls what the compat package has for tasks; run as a script, it then does the same for the database."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, get_current_context, task
from entrepot_airflow.compat import database, task_instances, task_process
from recorded_steps import Recorder

with DAG("compat", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as dag:

    @task
    def first() -> Any:
        return 41

    @task
    def second(read: Any) -> None:
        context: Any = get_current_context()
        ti = context["ti"]
        results: dict[str, Any] = {}
        results["is dag.test"] = task_process.is_dag_test()
        results["reschedules"] = task_process.reschedule_count(ti)
        results["other task's XCom"] = task_process.read_xcom(ti, "first", -1, "return_value")
        results["missing XCom"] = task_process.read_xcom(ti, "first", -1, "invented")
        task_process.write_own_xcom(ti, "request", {"asked": 1})
        results["own XCom"] = task_process.read_own_xcom(ti, "request")
        task_process.delete_own_xcom(ti, "request")
        results["own XCom, deleted"] = task_process.read_own_xcom(ti, "request")
        task_process.write_own_xcom(ti, "request", {"asked": 2})
        Path(os.environ["SEEN"], "task.json").write_text(json.dumps(results))

    second(first())


def read_database(run_id: str) -> dict[str, Any]:
    """Call the functions for Airflow's database after a run."""
    from airflow.models.log import Log
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from sqlalchemy import select

    results: dict[str, Any] = {}
    names = ["first", "second"]
    with database.database_session(own=True) as session:
        states = database.run_states([("compat", run_id), ("compat", "invented")], session)
        results["run states"] = [[dag_id, str(state)] for (dag_id, _), state in states.items()]
        results["DAGs"] = sorted(database.existing_dags({"compat", "invented"}, session))
        rows = database.lock_xcoms("request", session, limit=1)
        results["locked XComs"] = [[row.task_id, row.map_index, row.value] for row in rows]
        database.write_xcom(rows[0], "answer", {"answered": True}, session)
        results["instance of the XCom"] = task_instances.lock_instance_of(rows[0], session).task_id
    with database.database_session(own=True) as session:
        entries = database.xcoms_of_tasks("compat", run_id, ["second"], session, limit=10)
        results["answered"] = [[task_id, key, value] for task_id, _, key, value in entries if key != "return_value"]
        instances = task_instances.find_instances("compat", run_id, names, session)
        results["instances"] = sorted(map(list, instances))
        results["finished"] = [task_instances.is_finished(state) for state in (instances["first", -1].state, "running")]
        results["running"] = [task_instances.is_running(state) for state in (instances["first", -1].state, "running")]
        reader = database.serialized_task("compat", "second", run_id, session)
        results["upstream of second"] = sorted(reader.upstream_task_ids)
        results["missing task"] = database.serialized_task("compat", "invented", run_id, session)
        task_instances.clear_instances(
            [instances["first", -1]], session, event="compat_test", owner="a test", extra="why"
        )
    with database.database_session(own=True) as session:
        cleared = task_instances.instance_states("compat", run_id, names, session)
        results["cleared"] = sorted([task_id, state and str(state)] for (task_id, _), state in cleared)
        logs = session.scalars(select(Log).where(Log.event == "compat_test")).all()
        results["audited"] = [[row.task_id, row.event, row.owner, row.extra] for row in logs]
        ti = task_instances.find_instances("compat", run_id, names, session)["second", -1]
        ti.state = "up_for_reschedule"
        session.flush()
        before, rescheduled = (ti.id, ti.max_tries), task_instances.is_rescheduled(ti.state)
        task_instances.start_next_attempt(ti, session)
    with database.database_session(own=True) as session:
        ti = task_instances.find_instances("compat", run_id, names, session)["second", -1]
        results["released"] = {
            "rescheduled": rescheduled,
            "state": ti.state,
            "another attempt": ti.id != before[0],
            "more tries": ti.max_tries - before[1],
        }
        history = select(TaskInstanceHistory.state).where(TaskInstanceHistory.task_instance_id == before[0])
        results["history"] = [str(state) for state in session.scalars(history)]
    return results


def main() -> None:
    recorder = Recorder(Path(sys.argv[1]))
    runs: list[Any] = []

    def run_dag() -> str:
        runs.append(dag.test())
        return str(runs[0].state)

    recorder.run("state", run_dag)
    recorder.run("task", lambda: json.loads(Path(os.environ["SEEN"], "task.json").read_text()))
    recorder.run("database", lambda: read_database(runs[0].run_id))


if __name__ == "__main__":
    main()
