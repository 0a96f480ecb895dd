"""Collections through XCom: passed by ID, read whole or in part, and built by mapped tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import entrepot
import pytest
from entrepot.errors import ObjectLost
from entrepot_io.connections import close_all

XCOM_KEY = {"key": "return_value", "task_id": "seal", "dag_id": "etl", "run_id": "manual__1", "map_index": -1}


@pytest.fixture
def backend(daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    from entrepot_airflow import EntrepotXComBackend

    yield EntrepotXComBackend
    close_all()


def _reader(backend: Any, value: Any) -> Any:
    entry = json.loads(json.dumps(backend.serialize_value(value, **XCOM_KEY)))
    return lambda: backend.deserialize_value(SimpleNamespace(value=entry, key="return_value"))


def test_a_collection_goes_through_xcom(backend: Any) -> None:
    with entrepot.connect(scope="etl", session="manual__1") as store:
        for map_index in (2, 0, 1):
            store.collection("parts").put({"part": map_index}, index=map_index)
        sealed = store.collection("parts").seal(3)
    read = _reader(backend, {"all": sealed, "rest": sealed[1:]})
    value = read()
    assert value["all"] == sealed
    assert [member["part"] for member in value["rest"]] == [1, 2]
    assert _reader(backend, sealed)() == sealed
    sealed.delete()
    with pytest.raises(ObjectLost, match="'parts'"):
        read()
