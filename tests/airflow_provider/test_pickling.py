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
from entrepot_io import connections
from entrepot_io.connections import close_all

PLACE = {"key": "return_value", "task_id": "load", "dag_id": "etl", "run_id": "manual__1", "map_index": -1}
OPTION = "AIRFLOW__ENTREPOT__ALLOW_PICKLE"
LIST, EXPRESSIONS = (
    f"AIRFLOW__CORE__ALLOWED_DESERIALIZATION_CLASSES{end}" for end in ("", "_REGEXP")
)  # fmt: skip


class Model:
    def __init__(self, weights: Any) -> None:
        self.weights = weights


class Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


@pytest.fixture(autouse=True)
def backend(daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    for name in (OPTION, LIST, EXPRESSIONS, "ENTREPOT_ALLOW_PICKLE"):
        monkeypatch.delenv(name, raising=False)
    from entrepot_airflow import EntrepotXComBackend

    yield EntrepotXComBackend
    connections.permit_pickle(None, None)
    close_all()


def stored(backend: Any, value: Any) -> Any:
    place = {**PLACE, "task_id": type(value).__name__}
    return json.loads(json.dumps(backend.serialize_value(value, **place)))


def read(backend: Any, entry: Any) -> Any:
    return backend.deserialize_value(SimpleNamespace(value=entry, key="return_value"))


def test_by_default_values_are_pickled_as_before(backend: Any) -> None:
    assert read(backend, stored(backend, Model(3))).weights == 3


def test_a_deployments_list_holds_for_pickled_values_too(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [stored(backend, one) for one in (Model(3), Trap())]
    monkeypatch.setenv(LIST, f"airflow.* {__name__}.Model")
    assert read(backend, entries[0]).weights == 3
    with pytest.raises(UnsupportedType, match=r"pickled with posix\.mkdir, which is not among"):
        read(backend, entries[1])
    monkeypatch.setenv(LIST, "airflow.* other.*")
    with pytest.raises(UnsupportedType, match=r"Model.*\[core\] allowed_deserialization_classes"):
        read(backend, entries[0])
    assert not os.path.exists("ran")


def test_so_does_the_list_of_regular_expressions(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [stored(backend, one) for one in (Model(3), Trap())]
    monkeypatch.setenv(EXPRESSIONS, rf"{__name__.replace('.', '[.]')}[.]Mod")
    with pytest.raises(UnsupportedType, match="Model"):  # the expression has to match the full name
        read(backend, entries[0])
    monkeypatch.setenv(EXPRESSIONS, rf"{__name__.replace('.', '[.]')}[.]Mod.*")
    assert read(backend, entries[0]).weights == 3
    with pytest.raises(UnsupportedType):
        read(backend, entries[1])


def test_data_needs_no_list(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTION, "listed")
    array = np.arange(1000)
    assert np.array_equal(read(backend, stored(backend, array)), array)
    assert read(backend, stored(backend, (1, "two", b"x"))) == (1, "two", b"x")


def test_listed_means_airflows_own_list_where_nobody_wrote_one(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTION, "listed")
    entry = stored(backend, Model(3))
    with pytest.raises(UnsupportedType, match="Model"):
        read(backend, entry)


def test_no_writes_and_reads_none(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = stored(backend, Model(3))
    monkeypatch.setenv(OPTION, "no")
    with pytest.raises(UnsupportedType, match=r"switched off.*\[entrepot\] allow_pickle decides"):
        read(backend, entry)
    with pytest.raises(UnsupportedType, match=r"\[entrepot\] allow_pickle decides"):
        stored(backend, Model(3))


def test_yes_is_any_class(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTION, "yes")
    monkeypatch.setenv(LIST, "other.*")
    assert read(backend, stored(backend, Model(3))).weights == 3


def test_the_variable_wins(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = stored(backend, Model(3))
    monkeypatch.setenv(OPTION, "yes")
    monkeypatch.setenv("ENTREPOT_ALLOW_PICKLE", "0")
    with pytest.raises(UnsupportedType, match="switched off") as refused:
        read(backend, entry)
    assert "allow_pickle decides" not in str(refused.value)


def test_nonsense_is_refused(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTION, "sometimes")
    with pytest.raises(InvalidArgument, match=r"\[entrepot\] allow_pickle is yes, no or listed, not 'sometimes'"):
        stored(backend, b"x" * 10_000)


def test_the_environment_of_tasks_stays_as_it_is(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPTION, "no")
    before = dict(os.environ)
    stored(backend, b"x" * 10_000)
    assert dict(os.environ) == before
