"""The option ``reserve``, as all plugins use it: a size, or what a task stored in earlier runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from entrepot.errors import InvalidArgument
from entrepot_io.connections import close_all, scope_store
from entrepot_io.settings import Settings, reserve_setting, resolve
from entrepot_io.task_reservations import KEPT_RUNS, MEASUREMENTS_SESSION, TaskReservation, begin_task

SCOPE = "tests"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _environment(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    yield
    close_all()


def settings(reserve: str, timeout: float = 0) -> Settings:
    return resolve(reserve=reserve, reserve_timeout=timeout)


def begin(reserve: str, task: str = "task") -> TaskReservation:
    begun = begin_task(settings(reserve), SCOPE, "pipeline", task)
    assert begun is not None
    return begun


def run(nbytes: int, *, succeeded: bool = True) -> int:
    """Run a task that stores so many bytes; return what it had reserved."""
    begun = begin("measured")
    reserved = begun.bytes
    store = scope_store(None, SCOPE)
    oid = store.put(np.ones(nbytes, np.uint8))
    begun.end(succeeded=succeeded)
    store.delete(oid)
    return reserved


def held() -> int:
    return int(scope_store(None, SCOPE).status()["reservations"]["bytes"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("off", None),
        ("OFF", None),
        (0, None),
        ("measured", "measured"),
        ("2GiB", 2 << 30),
        (" 512MiB", 512 << 20),
        (4096, 4096),
    ],
    ids=repr,
)
def test_settings(value: Any, expected: Any) -> None:
    assert reserve_setting(value) == expected


@pytest.mark.parametrize("value", ["2 GB", "on", "-1", 1.5], ids=repr)
def test_a_setting_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="reserve must be off, measured or a size such as"):
        reserve_setting(value)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (resolve().reserve, resolve().reserve_timeout) == (None, 600.0)
    monkeypatch.setenv("ENTREPOT_RESERVE", "1GiB")
    monkeypatch.setenv("ENTREPOT_RESERVE_TIMEOUT", "90s")
    assert (resolve().reserve, resolve().reserve_timeout) == (1 << 30, 90.0)
    monkeypatch.setenv("ENTREPOT_RESERVE_TIMEOUT", "soon")
    with pytest.raises(InvalidArgument, match="reserve_timeout must be a duration"):
        resolve()


def test_off_asks_nobody(daemon: Any) -> None:
    daemon.stop()
    assert begin_task(settings("off"), SCOPE, "pipeline", "task") is None


def test_a_size_is_held_until_the_end() -> None:
    begun = begin("64MiB")
    assert (begun.bytes, held()) == (64 * MIB, 64 * MIB)
    begun.end(succeeded=True)
    begun.end(succeeded=False)
    assert (begun.bytes, held()) == (0, 0)
    assert MEASUREMENTS_SESSION not in [session.session for session in scope_store(None, SCOPE).sessions()]


def test_a_task_reserves_what_it_stored_before_and_a_margin() -> None:
    assert run(20 * MIB) == 0, "its first run is only measured"
    assert 22 * MIB <= run(10 * MIB) < 23 * MIB
    assert 22 * MIB <= run(30 * MIB) < 23 * MIB, "the most of its last runs"
    assert 33 * MIB <= run(MIB, succeeded=False) < 34 * MIB
    for _ in range(KEPT_RUNS - 1):
        assert 33 * MIB <= run(2 * MIB) < 34 * MIB
    assert 33 * MIB <= run(2 * MIB) < 34 * MIB, "the run that failed does not count"
    assert 2 * MIB <= run(2 * MIB) < 3 * MIB, "older runs are forgotten"
    assert begin("measured", "another task").bytes == 0


def test_a_task_that_stores_more_than_memory_reserves_most_of_it() -> None:
    for expected in (0, 192 * MIB):
        begun = begin("measured")
        assert begun.bytes == expected
        store = scope_store(None, SCOPE)
        for _ in range(5):
            store.delete(store.put(np.ones(60 * MIB, np.uint8)))
        begun.end(succeeded=True)


def test_tasks_that_overlap_in_one_process_are_not_measured() -> None:
    first, second = begin("measured", "first"), begin("measured", "second")
    scope_store(None, SCOPE).put(np.ones(MIB))
    first.end(succeeded=True)
    second.end(succeeded=True)
    assert begin("measured", "first").bytes == 0
    assert begin("measured", "second").bytes == 0


@pytest.mark.parametrize(
    ("size", "reason"), [("200MiB", "has reserved 100 MiB"), ("1GiB", "waiting would not help")], ids=["wait", "never"]
)
def test_what_cannot_be_reserved_is_one_warning(size: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    other = begin("100MiB", "other")
    with caplog.at_level(logging.WARNING):
        assert begin_task(settings(size), SCOPE, "pipeline", "task") is None
    (record,) = caplog.records
    assert "task 'task' runs without a reservation" in record.getMessage()
    assert reason in record.getMessage()
    other.end(succeeded=True)


def test_a_measured_task_that_cannot_reserve_is_measured_again(caplog: pytest.LogCaptureFixture) -> None:
    run(100 * MIB)
    store = scope_store(None, SCOPE)
    with store.reserve("200MiB"), caplog.at_level(logging.WARNING):
        begun = begin("measured")
    assert begun.bytes == 0
    assert len(caplog.records) == 1
    begun.end(succeeded=True)


def test_a_store_that_is_gone_is_one_warning(
    daemon: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begin("measured")
    daemon.stop()
    with caplog.at_level(logging.WARNING, logger="entrepot_io"):
        begun.end(succeeded=True)
    (record,) = (record for record in caplog.records if record.name.startswith("entrepot_io"))
    assert "cannot record how much task 'task' stored" in record.getMessage()
    caplog.clear()
    close_all()
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    with caplog.at_level(logging.WARNING, logger="entrepot_io"):
        assert begin_task(settings("1MiB"), SCOPE, "pipeline", "task") is None
    assert "runs without a reservation" in caplog.text
