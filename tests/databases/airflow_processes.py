"""Processes of an Airflow that has runs in its database and in a store."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

# Prologue: an Airflow with its own database, created from its models, which is much faster than running the migrations.
PROLOGUE = """
import sys, types
from datetime import datetime, timedelta, timezone
from airflow import settings
from airflow.models.base import Base
import airflow.models, airflow.models.dagbundle
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import delete, insert, update
import entrepot
from entrepot_airflow import session_sweeper
from entrepot_airflow.configuration import default_scope
from entrepot_airflow.lifetime.rules import LifetimeRules, configured_rules

airflow.models.import_all_models()
Base.metadata.create_all(settings.engine)
SCOPE = default_scope()
NOW = datetime.now(timezone.utc)

def add(dag, run, state, age=0):
    with create_session() as session:
        when = NOW - timedelta(days=age)
        session.execute(insert(DagRun.__table__).values(
            dag_id=dag, run_id=run, state=state, run_type="manual", logical_date=None, run_after=when, start_date=when,
            queued_at=when, log_template_id=None, clear_number=0, updated_at=when,
        ))
    name = f"airflow/{dag}/{run}"
    with entrepot.connect(scope=SCOPE, session=name) as store:
        store.put(b"x" * 100_000)

def left():
    with entrepot.connect(scope=SCOPE) as store:
        return sorted(one.session for one in store.sessions() if one.session)

with create_session() as session:
    session.execute(insert(airflow.models.dagbundle.DagBundleModel.__table__).values(name="tests", active=True))
    session.execute(insert(DagModel.__table__).values(dag_id="etl", bundle_name="tests",
        is_paused=False, is_stale=False, max_active_tasks=1,
        max_consecutive_failed_dag_runs=0, has_task_concurrency_limits=False))
"""


def run_in_airflow(code: str, daemon: Any, home: Path, **environment: str) -> str:
    """Run code in an Airflow process with this home directory; returns its output."""
    process = subprocess.run(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(code)],
        env=os.environ | {"AIRFLOW_HOME": str(home), "ENTREPOT_ADDRESS": daemon.address} | environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert process.returncode == 0, (process.stdout + process.stderr)[-8000:]
    return process.stdout
