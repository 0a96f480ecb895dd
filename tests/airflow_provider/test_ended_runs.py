"""Values are deleted with their DAG run: the scheduler detects the deletion, with or without a policy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import entrepot
import pytest
from airflow_processes import run_in_airflow
from entrepot_airflow.ended_runs import ended_runs
from entrepot_airflow.lifetime.judgement import run_of
from entrepot_io.scopes import folder_scope
from entrepot_io.sessions import run_session


def test_sessions_name_their_run() -> None:
    for dag, run in (("etl", "manual__2026"), ("a/b", "run 1/%")):
        assert run_of(run_session("airflow", dag, run)) == (dag, run)
    for session in ("airflow/detached", "airflow/a/b/c", "dagster/a/b", "", run_session("airflow", "x" * 300, "r")):
        assert run_of(session) is None


def test_another_installations_sessions_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import sys
from entrepot.ended_runs import NotLookedAt
from entrepot_airflow.ended_runs import ended_runs
for scope in ("airflow-other-123", "mine"):
    try:
        ended_runs(None, scope, ["airflow/etl/run"])
    except NotLookedAt as error:
        assert "is another installation" in str(error), error
    else:
        raise AssertionError("it looked")
assert "airflow" not in sys.modules
"""
    environment = os.environ | {"AIRFLOW_HOME": str(tmp_path), "ENTREPOT_SCOPE": "theirs"}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr


@pytest.mark.slow  # importing Airflow's models alone takes seconds
def test_values_are_deleted_with_their_run(daemon: Any, tmp_path: Path) -> None:
    output = run_in_airflow(
        """
        add("etl", "kept", "running")
        add("etl", "failed", "failed")
        add("etl", "deleted", "success")
        add("etl", "cleaned", "success", age=30)
        add("etl", "done", "success")
        add("unknown", "of another installation", "success")
        assert session_sweeper.sweep_once(LifetimeRules()) == []
        with create_session() as session:  # as REST does it
            run = session.query(DagRun).filter(DagRun.run_id == "deleted").one()
            session.delete(run)
            session.execute(delete(DagRun).where(DagRun.dag_id == "unknown"))
        with entrepot.connect(scope=SCOPE, session="airflow/etl/deleted"):
            assert session_sweeper.sweep_once(LifetimeRules()) == [], "somebody reads it"
        assert session_sweeper.sweep_once(LifetimeRules()) == ["airflow/etl/deleted"]
        from airflow.utils.db_cleanup import run_cleanup
        run_cleanup(clean_before_timestamp=NOW - timedelta(days=7), table_names=["dag_run"], confirm=False,
                    skip_archive=True)
        assert session_sweeper.sweep_once(LifetimeRules()) == ["airflow/etl/cleaned"]
        assert len(left()) == 4, left()

        # Where the user says so, values go once their run succeeded and nobody reads them.
        assert configured_rules().empty
        assert session_sweeper.sweep_once(LifetimeRules(after_success=0.0)) == ["airflow/etl/done"]
        assert left() == ["airflow/etl/failed", "airflow/etl/kept", "airflow/unknown/of another installation"]

        # `entrepot gc` asks the same database.
        from entrepot_airflow.ended_runs import ended_runs
        with create_session() as session:
            session.execute(update(DagRun).where(DagRun.run_id == "kept").values(state="success"))
        told = ended_runs(None, SCOPE, left())
        assert told == {"airflow/etl/kept": "its DAG run succeeded"}, told
        print("all of it")
        """,
        daemon,
        tmp_path,
    )
    assert output.endswith("all of it\n")


@pytest.mark.slow
def test_the_scheduler_sweeps_without_a_policy(daemon: Any, tmp_path: Path) -> None:
    output = run_in_airflow(
        """
        import time
        add("etl", "deleted", "success")
        add("etl", "done", "success")
        with create_session() as session:
            session.execute(delete(DagRun).where(DagRun.run_id == "deleted"))
        assert configured_rules() == LifetimeRules(after_success=0.0)
        session_sweeper.SWEEPER.period = 0.05
        from entrepot_airflow.plugin import EntrepotPlugin, _listeners
        assert _listeners() == [], "tasks and other components have no listener"
        sys.argv = ["airflow", "scheduler"]
        (listener,) = _listeners()
        class Job:  # is told to listeners before it says which kind it is
            pass
        job = Job()
        listener.on_starting(component=job)
        job.job_type = "SchedulerJob"
        end = time.monotonic() + 60
        while left() and time.monotonic() < end:
            time.sleep(0.05)
        assert left() == []
        listener.before_stopping(component=job)
        assert not session_sweeper.SWEEPER.alive
        print("all of it")
        """,
        daemon,
        tmp_path,
        AIRFLOW__ENTREPOT__DROP_FINISHED="True",
    )
    assert output.endswith("all of it\n")


@pytest.mark.slow
def test_a_sweep_starts_no_store(tmp_path: Path, socket_folder: Path) -> None:
    class UnreachableStore:
        address = f"unix://{socket_folder}/nobody.sock"

    (socket_folder / "run").mkdir(mode=0o700)
    run_in_airflow(
        "assert session_sweeper.sweep_once(LifetimeRules(after_success=0.0)) == []", UnreachableStore, tmp_path
    )
    assert not (socket_folder / "nobody.sock").exists()


def test_the_scope_is_the_homes(daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    with entrepot.connect(daemon.address) as store:
        assert ended_runs(store, folder_scope("airflow", tmp_path), ["airflow/detached"]) == {}
