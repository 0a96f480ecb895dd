"""Outputs of ops are deleted with their run, however the run was deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from dagster import DagsterInstance, Out, job, op
from dagster._cli.run import run_cli
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from entrepot.ended_runs import NotLookedAt
from entrepot_dagster import EntrepotIOManager, session_sweeper
from entrepot_dagster.ended_runs import DELETED, SUCCEEDED, ended_runs
from entrepot_dagster.values.keys import default_scope
from entrepot_io.connections import scope_store
from entrepot_io.scopes import scope_of

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


def run_job(instance: DagsterInstance) -> str:
    return str(small.execute_in_process(instance=instance, raise_on_error=False).run_id)


def remaining_sessions(instance: DagsterInstance) -> set[str]:
    sessions = scope_store(None, default_scope(instance)).sessions()
    return {info.session.removeprefix("dagster/") for info in sessions if info.session}


@pytest.fixture
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_sweeper, "SWEEP_SECONDS", 0.0)


@pytest.mark.usefixtures("looks_always")
def test_a_later_run_removes_what_deleted_ones_left(instance: DagsterInstance) -> None:
    by_cli, by_python, kept = run_job(instance), run_job(instance), run_job(instance)
    assert remaining_sessions(instance) == {by_cli, by_python, kept}
    command_result = CliRunner().invoke(run_cli, ["delete", by_cli, "--force"])
    assert command_result.exit_code == 0, command_result.output
    instance.delete_run(by_python)
    last = run_job(instance)
    assert remaining_sessions(instance) == {kept, last}
    command_result = CliRunner().invoke(run_cli, ["wipe", "--force"])
    assert command_result.exit_code == 0, command_result.output
    last = run_job(instance)
    assert remaining_sessions(instance) == {last}


def test_sweeps_are_rate_limited(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    swept_scopes: list[str] = []
    monkeypatch.setattr(session_sweeper, "remove_deleted", lambda instance, store: swept_scopes.append(store.scope))
    monkeypatch.setattr(session_sweeper, "_next", {})
    run_job(instance)
    run_job(instance)
    assert swept_scopes == [default_scope(instance)]


def test_sessions_used_a_moment_ago_are_left_to_a_later_sweep(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = run_job(instance)
    instance.delete_run(deleted)
    queries: list[object] = []

    def get_runs(_: DagsterInstance, filters: object, **_options: object) -> list[Any]:
        queries.append(filters)
        return []

    with monkeypatch.context() as patch:
        patch.setattr(DagsterInstance, "get_runs", get_runs)
        assert session_sweeper.remove_deleted(instance, scope_store(None, default_scope(instance))) == []
    assert queries == []
    assert remaining_sessions(instance) == {deleted}
    monkeypatch.setattr(session_sweeper, "SWEEP_SECONDS", 0.0)
    assert session_sweeper.remove_deleted(instance, scope_store(None, default_scope(instance))) == [
        f"dagster/{deleted}"
    ]


def test_the_database_is_asked_once_for_its_id(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = instance.run_storage
    assert isinstance(storage, SqlRunStorage)
    original, looks = SqlRunStorage.get_run_storage_id, []

    def get_run_storage_id(self: SqlRunStorage) -> str:
        looks.append(self)
        return original(self)

    monkeypatch.setattr(SqlRunStorage, "get_run_storage_id", get_run_storage_id)
    assert run_job(instance) != run_job(instance)
    assert len(looks) == 1
    assert default_scope(instance) == scope_of("dagster", original(storage))


def test_instances_of_one_process_keep_their_own_ids(tmp_path: Path) -> None:
    first_home, second_home = tmp_path / "first", tmp_path / "second"
    first_home.mkdir()
    second_home.mkdir()
    with (
        DagsterInstance.local_temp(str(first_home)) as first,
        DagsterInstance.local_temp(str(second_home)) as second,
    ):
        scopes = [default_scope(instance) for instance in (first, second, first)]
    assert scopes[0] == scopes[2] != scopes[1]
    with DagsterInstance.local_temp(str(second_home)) as again:
        assert default_scope(again) == scopes[1]


@pytest.mark.usefixtures("looks_always")
def test_a_configured_scope_is_not_swept(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances that share a scope do not know each other's runs."""
    monkeypatch.setenv("ENTREPOT_SCOPE", "shared")
    first = run_job(instance)
    instance.delete_run(first)
    second = run_job(instance)
    sessions = [f"dagster/{first}", f"dagster/{second}"]
    store = scope_store(None, "shared")
    assert {info.session for info in store.sessions() if info.session} == set(sessions)
    assert ended_runs(store, "shared", sessions) == {sessions[0]: DELETED, sessions[1]: SUCCEEDED}


def test_in_a_shared_scope_an_unknown_run_is_not_a_deleted_one(
    instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be running, in the other instance; what this one's runs have left is still found."""
    monkeypatch.setenv("ENTREPOT_SCOPE", "shared by two")
    deleted, succeeded = run_job(instance), run_job(instance)
    other_home = tmp_path / "other"
    other_home.mkdir()
    with DagsterInstance.local_temp(str(other_home)) as other:
        of_other = run_job(other)
    instance.delete_run(deleted)
    store = scope_store(None, "shared by two")
    sessions = [f"dagster/{run_id}" for run_id in (deleted, succeeded, of_other)]
    assert ended_runs(store, "shared by two", sessions) == {sessions[1]: SUCCEEDED}


def test_gc_asks_the_instance(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = default_scope(instance)
    succeeded, deleted = run_job(instance), run_job(instance)
    monkeypatch.setenv("FAIL_TOTAL", "1")
    failed = run_job(instance)
    instance.delete_run(deleted)
    store = scope_store(None, scope)
    sessions = [f"dagster/{run_id}" for run_id in (succeeded, deleted, failed)] + [
        "dagster/ephemeral/1",
        "dagster/ephemeral",
    ]
    assert ended_runs(store, scope, sessions) == {sessions[0]: SUCCEEDED, sessions[1]: DELETED}
    with pytest.raises(NotLookedAt, match="is another instance"):
        ended_runs(store, "dagster-another", sessions)
    with monkeypatch.context() as patch:
        patch.setattr("entrepot_dagster.ended_runs.find_spec", {}.get)
        with pytest.raises(NotLookedAt, match="Dagster is not installed here: run this where it is"):
            ended_runs(store, scope, sessions)
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
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stdout) == (0, "False\n"), process.stderr
