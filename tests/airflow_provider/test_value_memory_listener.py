"""The listener that lets tasks make values in the store: whatever the settings are, no task fails because of it."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot_airflow import value_memory
from entrepot_io.connections import close_all
from suspension import suspend

# Connecting without a limit of its own takes 30 s to give up.
PATIENCE_SECONDS = 15.0


@pytest.fixture(autouse=True)
def _task_process(monkeypatch: pytest.MonkeyPatch, socket_folder: Path) -> Iterator[None]:
    monkeypatch.setenv("AIRFLOW__CORE__XCOM_BACKEND", "entrepot_airflow.EntrepotXComBackend")
    monkeypatch.setenv("ENTREPOT_ADDRESS", f"unix://{socket_folder}/nothing.sock")
    yield
    close_all()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_by_default_nothing_is_said_of_a_store_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    value_memory.on_task_instance_running(None, None)
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("ENTREPOT_ALLOCATE", "1", "nothing.sock cannot be reached"),
        ("ENTREPOT_ALLOCATE", "perhaps", "'perhaps'"),
        ("ENTREPOT_COPY", "sometimes", "'sometimes'"),
    ],
)
def test_a_setting_that_cannot_be_met_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(variable, value)
    value_memory.on_task_instance_running(None, None)
    (message,) = warnings(caplog)
    assert message.startswith("Entrepot: the task's values are made in its own memory: ")
    assert reason in message


def test_a_stopped_store_does_not_keep_a_task_from_beginning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, daemon: Any
) -> None:
    with entrepot.connect(daemon.address) as store:
        status = store.status()
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    suspend(status["keeper_pid"])
    suspend(status["pid"])
    try:
        begin = time.monotonic()
        value_memory.on_task_instance_running(None, None)
        assert np.ones(1_000_000).sum() == 1_000_000
        close_all()
        assert time.monotonic() - begin < PATIENCE_SECONDS
    finally:
        os.kill(status["pid"], signal.SIGCONT)
        os.kill(status["keeper_pid"], signal.SIGCONT)
    assert warnings(caplog) == []
