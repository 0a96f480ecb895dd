"""Outputs of ops are deleted with their run, however the run was deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from dagster import DagsterInstance, Out, job, op
from dagster._cli.run import run_cli
from entrepot.ended_runs import NotLookedAt
from entrepot_dagster import EntrepotIOManager, sweeping
from entrepot_dagster.ended_runs import DELETED, SUCCEEDED, ended_runs
from entrepot_dagster.places import default_scope
from entrepot_io.connections import scope_store

pytestmark = pytest.mark.usefixtures("own_store")


@op(out=Out())
def numbers() -> np.ndarray:
    return np.arange(10_000)


@op
def total(values: np.ndarray) -> int:
    if os.environ.get("FAIL_TOTAL"):
        raise RuntimeError("told to fail")
    return int(values.sum())


@job(resource_defs={"io_manager": EntrepotIOManager()})
def small() -> None:
    total(numbers())


def run(instance: DagsterInstance) -> str:
    return str(small.execute_in_process(instance=instance, raise_on_error=False).run_id)


def left(instance: DagsterInstance) -> set[str]:
    found = scope_store(None, default_scope(instance)).sessions()
    return {one.session.removeprefix("dagster/") for one in found if one.session}


@pytest.fixture
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "SWEEP_SECONDS", 0.0)


@pytest.mark.usefixtures("looks_always")
def test_a_later_run_removes_what_deleted_ones_left(instance: DagsterInstance) -> None:
    by_cli, by_python, kept = run(instance), run(instance), run(instance)
    assert left(instance) == {by_cli, by_python, kept}
    done = CliRunner().invoke(run_cli, ["delete", by_cli, "--force"])
    assert done.exit_code == 0, done.output
    instance.delete_run(by_python)
    last = run(instance)
    assert left(instance) == {kept, last}
    done = CliRunner().invoke(run_cli, ["wipe", "--force"])
    assert done.exit_code == 0, done.output
    last = run(instance)
    assert left(instance) == {last}


def test_a_process_does_not_look_all_the_time(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(sweeping, "remove_deleted", lambda instance, store: looked.append(store.scope))
    monkeypatch.setattr(sweeping, "_next", {})
    run(instance)
    run(instance)
    assert looked == [default_scope(instance)]


@pytest.mark.usefixtures("looks_always")
def test_a_scope_that_was_set_by_hand_is_left_to_gc(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances that share a scope do not know each other's runs."""
    monkeypatch.setenv("ENTREPOT_SCOPE", "shared")
    first = run(instance)
    instance.delete_run(first)
    second = run(instance)
    sessions = [f"dagster/{first}", f"dagster/{second}"]
    store = scope_store(None, "shared")
    assert {one.session for one in store.sessions() if one.session} == set(sessions)
    assert ended_runs(store, "shared", sessions) == {sessions[0]: DELETED, sessions[1]: SUCCEEDED}


def test_gc_asks_the_instance(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = default_scope(instance)
    good, deleted = run(instance), run(instance)
    monkeypatch.setenv("FAIL_TOTAL", "1")
    failed = run(instance)
    instance.delete_run(deleted)
    store = scope_store(None, scope)
    sessions = [f"dagster/{one}" for one in (good, deleted, failed)] + ["dagster/ephemeral/1", "dagster/ephemeral"]
    assert ended_runs(store, scope, sessions) == {sessions[0]: SUCCEEDED, sessions[1]: DELETED}
    with pytest.raises(NotLookedAt, match="is another instance"):
        ended_runs(store, "dagster-another", sessions)
    monkeypatch.delenv("DAGSTER_HOME")
    with pytest.raises(NotLookedAt, match="DAGSTER_HOME is not set"):
        ended_runs(store, scope, sessions)


def test_nothing_of_dagster_is_imported_for_others(tmp_path: Path) -> None:
    code = """
import sys
from entrepot.ended_runs import NotLookedAt
from entrepot_dagster.ended_runs import ended_runs
try:
    ended_runs(None, "airflow-x", ["dagster/1"])
except NotLookedAt:
    print("dagster" in sys.modules)
"""
    environment = os.environ | {"DAGSTER_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
