"""Pickled values in Airflow: ``[entrepot] allow_pickle`` and Airflow's own list of allowed classes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from entrepot.errors import InvalidArgument, UnsupportedType
from entrepot_airflow.values import read_ahead
from entrepot_io import connections
from entrepot_io.connections import close_all

XCOM_KEY = {"key": "return_value", "task_id": "load", "dag_id": "etl", "run_id": "manual__1", "map_index": -1}
ALLOW_PICKLE_VARIABLE = "AIRFLOW__ENTREPOT__ALLOW_PICKLE"
CLASSES_VARIABLE, EXPRESSIONS_VARIABLE = (
    f"AIRFLOW__CORE__ALLOWED_DESERIALIZATION_CLASSES{end}" for end in ("", "_REGEXP")
)  # fmt: skip


class Model:
    def __init__(self, weights: Any) -> None:
        self.weights = weights


class MkdirOnUnpickle:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


@pytest.fixture(autouse=True)
def backend(daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    for name in (ALLOW_PICKLE_VARIABLE, CLASSES_VARIABLE, EXPRESSIONS_VARIABLE, "ENTREPOT_ALLOW_PICKLE"):
        monkeypatch.delenv(name, raising=False)
    from entrepot_airflow import EntrepotXComBackend

    yield EntrepotXComBackend
    connections.permit_pickle(None, None)
    close_all()


def database_entry(backend: Any, value: Any) -> Any:
    xcom_key = {**XCOM_KEY, "task_id": type(value).__name__}
    return json.loads(json.dumps(backend.serialize_value(value, **xcom_key)))


def read(backend: Any, entry: Any) -> Any:
    return backend.deserialize_value(SimpleNamespace(value=entry, key="return_value"))


def test_by_default_values_are_pickled_as_before(backend: Any) -> None:
    assert read(backend, database_entry(backend, Model(3))).weights == 3


def test_a_deployments_list_holds_for_pickled_values_too(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [database_entry(backend, value) for value in (Model(3), MkdirOnUnpickle())]
    monkeypatch.setenv(CLASSES_VARIABLE, f"airflow.* {__name__}.Model")
    assert read(backend, entries[0]).weights == 3
    with pytest.raises(UnsupportedType, match=r"pickled with posix\.mkdir, which this process does not allow"):
        read(backend, entries[1])
    monkeypatch.setenv(CLASSES_VARIABLE, "airflow.* other.*")
    with pytest.raises(UnsupportedType, match=r"Model.*\[core\] allowed_deserialization_classes"):
        read(backend, entries[0])
    assert not os.path.exists("ran")


def test_a_deployments_regular_expressions_hold_too(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [database_entry(backend, value) for value in (Model(3), MkdirOnUnpickle())]
    monkeypatch.setenv(EXPRESSIONS_VARIABLE, rf"{__name__.replace('.', '[.]')}[.]Mod")
    with pytest.raises(UnsupportedType, match="Model"):  # the expression has to match the full name
        read(backend, entries[0])
    monkeypatch.setenv(EXPRESSIONS_VARIABLE, rf"{__name__.replace('.', '[.]')}[.]Mod.*")
    assert read(backend, entries[0]).weights == 3
    with pytest.raises(UnsupportedType):
        read(backend, entries[1])


def test_data_needs_no_list(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_PICKLE_VARIABLE, "listed")
    array = np.arange(1000)
    assert np.array_equal(read(backend, database_entry(backend, array)), array)
    assert read(backend, database_entry(backend, (1, "two", b"x"))) == (1, "two", b"x")


def test_listed_means_airflows_default_list(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_PICKLE_VARIABLE, "listed")
    entry = database_entry(backend, Model(3))
    with pytest.raises(UnsupportedType, match="Model"):
        read(backend, entry)


def test_option_no_refuses_pickle_on_write_and_read(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = database_entry(backend, Model(3))
    monkeypatch.setenv(ALLOW_PICKLE_VARIABLE, "no")
    with pytest.raises(UnsupportedType, match=r"switched off.*\[entrepot\] allow_pickle controls this"):
        read(backend, entry)
    with pytest.raises(UnsupportedType, match=r"\[entrepot\] allow_pickle controls this"):
        database_entry(backend, Model(3))


def test_the_option_holds_for_the_results_of_mapped_tasks(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = database_entry(backend, Model(3))
    monkeypatch.setenv(ALLOW_PICKLE_VARIABLE, "no")
    connections.permit_pickle(None, None)  # as in a new process, which has read nothing yet
    monkeypatch.setattr(read_ahead, "stored_entries", lambda sequence, start, stop: [entry][start:stop])
    of_none: Any = SimpleNamespace()
    sequence = read_ahead.ReadAheadSequence(xcom_arg=of_none, ti=of_none)
    assert sequence._request_batch(0, 1) == (0, [entry], read_ahead.REFERENCES)
    with pytest.raises(UnsupportedType, match=r"\[entrepot\] allow_pickle controls this"):
        read(backend, entry)


def test_option_yes_allows_any_class(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_PICKLE_VARIABLE, "yes")
    monkeypatch.setenv(CLASSES_VARIABLE, "other.*")
    assert read(backend, database_entry(backend, Model(3))).weights == 3


def test_the_variable_wins(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = database_entry(backend, Model(3))
    monkeypatch.setenv(ALLOW_PICKLE_VARIABLE, "yes")
    monkeypatch.setenv("ENTREPOT_ALLOW_PICKLE", "0")
    with pytest.raises(UnsupportedType, match="switched off") as refused:
        read(backend, entry)
    assert "allow_pickle controls this" not in str(refused.value)


def test_an_invalid_option_is_refused(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_PICKLE_VARIABLE, "sometimes")
    with pytest.raises(InvalidArgument, match=r"\[entrepot\] allow_pickle must be yes, no or listed, not 'sometimes'"):
        database_entry(backend, b"x" * 10_000)


def test_the_environment_of_tasks_stays_as_it_is(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_PICKLE_VARIABLE, "no")
    before = dict(os.environ)
    database_entry(backend, b"x" * 10_000)
    assert dict(os.environ) == before
