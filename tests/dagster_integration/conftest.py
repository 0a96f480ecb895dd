"""Fixtures of the integration's tests: a store per test, and an instance with storage."""

from __future__ import annotations

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


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterInstance]:
    """Instance with persistent storage, as with `dagster dev`."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with DagsterInstance.get() as dagster_instance:
        yield dagster_instance
