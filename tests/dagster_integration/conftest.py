"""Fixtures of the integration's tests: a store per test, and an instance with storage."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance
from entrepot_io.connections import close_all


@pytest.fixture
def own_store(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the test's daemon the store that IO managers use."""
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    monkeypatch.delenv("ENTREPOT_SCOPE", raising=False)
    yield
    close_all()


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DAGSTER_HOME whose databases have all tables and no rows: making those takes longer than most of the tests."""
    home = tmp_path_factory.mktemp("dagster-home")
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with DagsterInstance.from_config(str(home)):
        return home


@pytest.fixture
def instance(empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    """Instance with persistent storage, as with `dagster dev`."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    shutil.copytree(empty_home, tmp_path, dirs_exist_ok=True)
    with DagsterInstance.get() as dagster_instance:
        yield dagster_instance
