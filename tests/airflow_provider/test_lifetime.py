"""Rules for the life time of runs' values, and what the reconciler removes in a real store with a real database."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow_processes import run_in_airflow
from entrepot.errors import InvalidArgument
from entrepot_airflow.lifetime import rules as lifetime_rules
from entrepot_airflow.lifetime.decisions import Run, RunRecord, decide
from entrepot_airflow.lifetime.rules import LifetimeRules, configured_rules

HOUR = 3600.0
RULES = LifetimeRules(after_success=HOUR, after_failure=2 * HOUR, max_age=10 * HOUR, keep_runs=1)


@pytest.mark.parametrize(
    ("state", "ended_for", "removed"),
    [
        ("queued", 0.0, False),
        ("running", 100 * HOUR, False),
        ("success", HOUR - 1, False),
        ("success", HOUR, True),
        ("failed", HOUR, False),
        ("failed", 2 * HOUR, True),
    ],
)
def test_outcome_and_age_decide(state: str, ended_for: float, removed: bool) -> None:
    run: Run = ("etl", "run")
    records: dict[Run, RunRecord] = {run: RunRecord(state, ended_for, 0)}
    decision = decide([run], records, RULES, known_dags=None, newest=set(), needed={})[run]
    assert decision.remove is removed, decision


def test_the_oldest_rule_bounds_all_outcomes() -> None:
    run: Run = ("etl", "run")
    rules = LifetimeRules(max_age=HOUR)
    for state in ("success", "failed"):
        records: dict[Run, RunRecord] = {run: RunRecord(state, HOUR, 0)}
        decision = decide([run], records, rules, known_dags=None, newest=set(), needed={})[run]
        assert decision.remove
        assert "keep_at_most is 1 h" in decision.why


def test_newest_and_needed_runs_are_kept_but_not_deleted_ones() -> None:
    newest, needed, gone, unknown = ("etl", "new"), ("etl", "needed"), ("etl", "gone"), ("other", "gone")
    records: dict[Run, RunRecord] = {
        newest: RunRecord("success", 9 * HOUR, 0),
        needed: RunRecord("success", 9 * HOUR, 0),
    }
    decisions = decide(
        [newest, needed, gone, unknown], records, RULES, known_dags={"etl"}, newest={newest}, needed={needed: "read"}
    )
    assert {run: decision.remove for run, decision in decisions.items()} == {
        newest: False,
        needed: False,
        gone: True,
        unknown: False,
    }
    assert decisions[needed].why == "read"


def test_without_rules_only_deleted_runs_go() -> None:
    run: Run = ("etl", "run")
    for state in ("success", "failed"):
        records: dict[Run, RunRecord] = {run: RunRecord(state, 1e9, 0)}
        decision = decide([run], records, LifetimeRules(), known_dags=None, newest=set(), needed={})[run]
        assert not decision.remove
        assert "no rule" in decision.why


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ({}, LifetimeRules()),
        ({"drop_finished": "True"}, LifetimeRules(after_success=0.0)),
        ({"keep_after_success": "0s"}, LifetimeRules(after_success=0.0, keep_runs=1)),
        ({"keep_after_failure": "7d", "keep_runs": "3"}, LifetimeRules(after_failure=7 * 24 * HOUR, keep_runs=3)),
        ({"keep_after_success": "forever", "keep_at_most": "90"}, LifetimeRules(max_age=90.0, keep_runs=1)),
        ({"drop_finished": "True", "keep_at_most": "1h"}, LifetimeRules(0.0, None, HOUR, 1)),
    ],
)
def test_rules_of_the_configuration(
    options: dict[str, str], rules: LifetimeRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetime_rules, "option", options.get)
    assert configured_rules() == rules


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"keep_after_success": "soon"}, r"keep_after_success must be a duration .* not 'soon'"),
        ({"keep_at_most": "-1h"}, "keep_at_most"),
        ({"keep_at_most": "1h", "keep_runs": "some"}, "keep_runs must be a number of runs, not 'some'"),
        ({"drop_finished": "perhaps"}, "drop_finished must be true or false, not 'perhaps'"),
        ({"drop_finished": "yes", "keep_after_success": "1h"}, "contradict each other"),
    ],
)
def test_a_wrong_rule_is_named(options: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime_rules, "option", options.get)
    with pytest.raises(InvalidArgument, match=named):
        configured_rules()


RECONCILED = """
    import contextlib, io, json
    from airflow.models.asset import (
        AssetDagRunQueue, AssetEvent, AssetModel, association_table,
    )
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from entrepot import cli
    from entrepot_airflow.values.xcom_values import store_xcom
    from entrepot_airflow.xcom_key import XComKey
    from sqlalchemy import select
    import uuid
    from entrepot_airflow import reconciler
    from entrepot_airflow.lifetime.orphans import OrphanSearch

    # The orphans' grace is a matter of arithmetic, and the clock of the database is not to be waited for.
    RULES = LifetimeRules(after_success=3600.0, after_failure=7200.0, keep_runs=1)

    def ended(run, state, hours):
        add("etl", run, state, age=1)
        with create_session() as session:
            session.execute(update(DagRun).where(DagRun.run_id == run).values(
                end_date=NOW - timedelta(hours=hours), run_after=NOW - timedelta(hours=hours)))

    def push(run, task, value, refer_to=None):
        entry = refer_to or store_xcom(value, XComKey("etl", task, run, -1, "return_value"))
        with create_session() as session:
            number = session.scalar(select(DagRun.id).where(DagRun.run_id == run))
            # The reconciler reads the XComs only; the tables that they point to are not needed.
            session.execute(insert(TaskInstance.__table__).values(
                id=uuid.uuid4(), dag_id="etl", run_id=run, task_id=task, map_index=-1, pool="default_pool",
                pool_slots=1, try_number=1, max_tries=0, state="success", custom_operator_name="", span_status="x"))
            session.execute(insert(XComModel.__table__).values(
                dag_run_id=number, dag_id="etl", run_id=run, task_id=task, map_index=-1, key="return_value",
                value=entry, timestamp=NOW))
        return entry

    for run, state, hours in (
        ("old", "success", 5), ("failed", "failed", 1.5), ("failed long ago", "failed", 3), ("read", "success", 4),
        ("started", "success", 4), ("queues", "success", 4), ("newest", "success", 1.1),
    ):
        ended(run, state, hours)
    add("etl", "running", "running")
    add("etl", "deleted", "success")
    with create_session() as session:
        session.execute(delete(DagRun).where(DagRun.run_id == "deleted"))

    # A run that reads an XCom of another, one that another's asset started, and one that is to start another.
    read = push("read", "make", b"y" * 50_000)
    push("running", "use", None, refer_to=read)
    with create_session() as session:
        for number in (1, 2):
            session.execute(insert(AssetModel.__table__).values(
                id=number, name=f"a{number}", uri=f"x://{number}", group="asset", extra={}, created_at=NOW,
                updated_at=NOW))
        for number, run in ((1, "started"), (2, "queues")):
            session.execute(insert(AssetEvent.__table__).values(
                id=number, asset_id=number, extra={}, source_dag_id="etl", source_run_id=run, source_task_id="make",
                timestamp=NOW))
        reader = session.scalar(select(DagRun.id).where(DagRun.run_id == "running"))
        session.execute(insert(association_table).values(dag_run_id=reader, event_id=1))
        session.execute(insert(AssetDagRunQueue.__table__).values(asset_id=2, target_dag_id="etl", created_at=NOW))

    # In a run that is kept: a value of an XCom, one that no XCom refers to, and an object of the user's own.
    push("newest", "make", b"z" * 50_000)
    store_xcom(b"o" * 50_000, XComKey("etl", "killed", "newest", -1, "return_value"))
    with entrepot.connect(scope=SCOPE, session="airflow/etl/newest") as store:
        store.put(b"u" * 1000, name="mine/own/name")
        store.put_many([b"m"] * 2500)
    from entrepot_io.connections import close_all
    close_all()

    def gc(*arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = cli.main(["airflow", "gc", "--json", *arguments])
        return code, json.loads(output.getvalue())

    def names(items):
        return sorted(item["xcom"] or item["session"].removeprefix("airflow/etl/") for item in items)

    REMOVED = ["deleted", "etl/killed/return_value", "failed long ago", "old"]
    before = left()
    code, told = gc("--dry-run")
    assert code == 0 and names(told["removed"]) == REMOVED, told
    why = {item["session"].removeprefix("airflow/etl/"): item["why"] for item in told["kept"]}
    assert why["failed"].startswith("one of the newest 1 "), why
    assert why["read"] == "an XCom of etl/running/use refers to it", why
    assert why["started"] == "its assets started etl/running, which has not ended", why
    assert why["queues"] == "its assets are to start a run of etl", why
    assert why["newest"].startswith("one of the newest 1 "), why
    assert why["running"] == "its DAG run is running", why
    assert left() == before, "a dry run removes nothing"

    # A search with a limit gets to the same value, once in each of its rounds: four sessions of
    # a page, and one of three pages.
    search = OrphanSearch(1)
    with entrepot.connect(scope=SCOPE) as store:
        turns = [
            [verdict.name for verdict in reconciler.find(store, SCOPE, RULES, only_known_dags=True, search=search)
             if verdict.object is not None]
            for _ in range(14)
        ]
    turn = turns.index(["etl/killed/return_value"])
    assert turn < 7 and turns == [["etl/killed/return_value"] if at % 7 == turn else [] for at in range(14)], turns

    # What is opened, or whose run is cleared, after it was found is not removed.
    with entrepot.connect(scope=SCOPE) as store:
        verdicts = reconciler.find(store, SCOPE, RULES, only_known_dags=True)
        with create_session() as session:
            session.execute(update(DagRun).where(DagRun.run_id == "old").values(state="queued", clear_number=1))
        with entrepot.connect(scope=SCOPE, session="airflow/etl/failed long ago"):
            removed, problems = reconciler.remove(store, SCOPE, verdicts)
    assert sorted(verdict.name or verdict.session for verdict in removed) == [
        "airflow/etl/deleted", "etl/killed/return_value"], removed
    assert problems[0].endswith("has it open") and problems[1].endswith("was cleared meanwhile"), problems
    with create_session() as session:
        session.execute(update(DagRun).where(DagRun.run_id == "old").values(state="success"))

    code, told = gc()
    assert code == 0 and names(told["removed"]) == ["failed long ago", "old"], told
    assert [name.removeprefix("airflow/etl/") for name in left()] == [
        "failed", "newest", "queues", "read", "running", "started"]
    with entrepot.connect(scope=SCOPE, session="airflow/etl/newest") as store:
        assert store.get_by_name("etl/make/return_value") == b"z" * 50_000
        assert store.get_by_name("mine/own/name") == b"u" * 1000
    print("all of it")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", pytest.param("sqlite", marks=pytest.mark.exhaustive)])
def test_only_what_nothing_needs_is_removed(
    kind: str, daemon: Any, tmp_path: Path, airflow_database: Callable[[], dict[str, str]]
) -> None:
    variables = airflow_database() if kind == "postgresql" else {}
    output = run_in_airflow(
        RECONCILED,
        daemon,
        tmp_path,
        AIRFLOW__ENTREPOT__KEEP_AFTER_SUCCESS="1h",
        AIRFLOW__ENTREPOT__KEEP_AFTER_FAILURE="2h",
        **variables,
    )
    assert output.endswith("all of it\n")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_without_a_database_or_with_a_wrong_rule_nothing_is_removed(daemon: Any, tmp_path: Path) -> None:
    run_in_airflow(
        """
        import os, subprocess
        add("etl", "gone", "success")
        with create_session() as session:
            session.execute(delete(DagRun))

        def gc(**variables):
            command = [sys.executable, "-m", "entrepot", "airflow", "gc"]
            done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=120)
            assert done.returncode not in (0, None), done.stdout
            assert left() == ["airflow/etl/gone"], left()
            assert "Traceback" not in done.stderr, done.stderr
            return done.stderr

        told = gc(AIRFLOW__DATABASE__SQL_ALCHEMY_CONN="sqlite:////nowhere/airflow.db")
        assert "Airflow's database cannot be read" in told, told
        told = gc(AIRFLOW__ENTREPOT__KEEP_AT_MOST="long")
        assert "[entrepot] keep_at_most must be a duration" in told, told
        told = gc(ENTREPOT_ADDRESS="unix:///nowhere/store.sock")
        assert "unix:///nowhere/store.sock" in told, told
        """,
        daemon,
        tmp_path,
    )
    assert os.path.isdir(tmp_path)
